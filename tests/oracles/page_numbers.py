"""The numbers that a page states outside of code and formulas, without those that are plainly settings or references.

One of the rules below recognizes those where they stand:

- a formula: a sign or a fraction touches it, or an equation of one letter ("N = 1,000", "1/M"; not of epsilon and mu);
- a setting: a word for what somebody chooses comes before it ("noise 2", "batches of 256", "σ 1"), or a word for what
  runs consist of comes after it ("60 epochs", "1,050 records");
- a reference: a section, a theorem, a year, a date, an issue, an exit status, a release, the number of an item;
- the first cell of a row, which says what the row is about;
- intervals and pairs of whole numbers, as "(0, 1)";
- 0, 1 and 2 in a sentence, unless a unit or a word of measure follows.

A number that code on the same page has in the same digits needs no line either, if it has two digits or more: blocks
are run, and what they print is compared, by `test_docs_examples`.
"""

from __future__ import annotations

import re
from functools import lru_cache

N = r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?"
WHOLE = r"\d+(?:,\d{3})*(?:e[+-]?\d+)?(?!\.?\d|,\d{3})"
NUMBER = re.compile(rf"(?<![\w./^_])(?<![\w.]-){N}(?!\w|\.\d|,\d{{3}})")
ANY = re.compile(r"(?<![\w.])\d+(?:[_,]\d{3}(?!\d))*(?:\.\d+)?(?:e[+-]?\d+)?")
SERIES = rf"{N}(?:(?:, | and | or | to |, and | against ){N})*"
BLOCK = r"^(?P<fence>`{3,}).*?^(?P=fence)`*"
NO_PROSE = re.compile(BLOCK + r"|\$\$.*?\$\$|`[^`\n]*`|\$[^$\n]*\$|(?<=\])\([^)\n]*\)", re.M | re.S)
FENCED = re.compile(r"^(?P<fence>`{3,})(?P<language>[^\n]*)\n(?P<body>.*?)^(?P=fence)", re.M | re.S)
RUN = re.compile(r"python|pycon|console|toml|\{code-block\}.*")
IN_CODE = re.compile(r"(?<![\w.])\d[\d_,]*(?:\.\d+)?(?:e-?\d+)?(?!\w|\.\d)")
CHOSEN = (
    "noise|noise multiplier|multiplier|clipping norm|norm|sensitivity|rates?|rates? of|delta|delta0|δ|σ|sigma|"
    "separation|participation of|[Ss]eeds?|mean|shifts? of|shift|N|B|T|M|E|q|n|t|k|batch|mean batch|"
    "(?:[Bb]atch(?:es)?|cohorts?|[Bb]uffer|loader|dataset|epoch|units?|groups?|pairs?) of(?: at most| exactly)?"
)
MADE_OF = (
    "records?|epochs?|steps?|batches|rounds|clients|users|parameters|coordinates|inputs|per round|rows|names|"
    "participations|examples|cores|digits|gradients|pairs|trials|epochs of MNIST|Poisson steps|other records"
)
NAMED = (
    "[Ss]ections?|[Tt]heorems?|[Ll]emmas?|[Cc]ases?|[Tt]ables?|[Ff]igures?|[Pp]ropositions?|[Cc]onjectures?|Corollary|Attack|Appendix|"
    "[Ss]teps?|[Tt]ier|[Rr]ank|[Vv]ersions?|[Ll]ayer|[Ss]tatus:?|[Ss]tatus of|ends? with|capability|IEEE|SP|request|"
    "issue|Equations?|confidence|radices|since|releases?|opacus|tf-privacy|pfl|Flower|Opacus|PyTorch|JAX|JAX-Privacy|"
    "dp-accounting|NVFlare|riskcal|PLD_accounting|Ray|joblib|optax|Python|NCCL"
)
SIGN = r"[<>≤≥−+±√·×≈→∈^]|(?<![εμ] )(?<!psilon )(?<!mu )="
UNIT = r"%|percent|per cent|s\b|ms\b|[KMG]i?B|times|x\b|seconds|minutes|hours|points|lines|of \d|of the"
RULES = [
    re.compile(rf"^\s*(?:>\s*)?(?:#+ )?{N}\. ", re.M),
    re.compile(rf"^\|\s*{SERIES}(?: \([^|]*\))?\s*(?=\|)", re.M),
    re.compile(rf"(?:{SIGN})\s?−?{WHOLE}(?:(?:, | and | or | to ){WHOLE})*"),
    re.compile(rf"(?<![\w)])(?:[^\W\d_εμ]|delta|sigma|delta0|confidence) ?(?:=|<|>|≤|≥|>=|<=|near) {SERIES}"),
    re.compile(rf"{N}(?=\s?[−+·×⁻≤<>=^/*°]|[(]\w? ?[−+·]| \([a-z] \+| [b-wyzB-HJ-Z] (?:[a-zρ]\b|ρ|log))"),
    re.compile(rf"(?<=[/⁻_^{{√±−·])\s?{N}|√\({N}"),
    re.compile(rf"(?<=\w - ){N}|{N}(?= - \w)|(?<=\w-){N}|{N}(?=-norm|-out-of)"),
    re.compile(rf"(?<=[\w)]\(){WHOLE}(?=\)| [−+-]|, )"),
    re.compile(rf"[(\[](?:0|−∞|{WHOLE}r?), ?{WHOLE}(?:r|\]|\))|[(\[]{WHOLE}, (?:∞|inf)|[(\[]0(?=, )"),
    re.compile(rf"(?<=∞, ){WHOLE}|(?<=\w, ){WHOLE}(?=[)\]])"),
    re.compile(rf"(?<!\w)(?:{CHOSEN})\s{SERIES}"),
    re.compile(rf"{WHOLE}(?:(?:, | and | or | to | of ){WHOLE})*[-\s]+(?:{MADE_OF})\b"),
    re.compile(rf"\b(?:{NAMED})\s\(?{SERIES}(?! ?%)"),
    re.compile(r"\b(?:19|20)\d\d-\d\d(?:-\d\d)?|\((?:19|20)\d\d\)|(?:al\.|[A-Z][\w-]+),?\s\(?(?:19|20)\d\d\b"),
    re.compile(rf"\[(?:[\w -]+ )?{WHOLE}(?=\])"),
    re.compile(rf"(?<!\| )(?<![\d,])\b[012]\b(?!\.\d|,\d)(?!\s?(?:{UNIT}))"),
]


@lru_cache(maxsize=4)
def prose(text: str) -> str:
    """The page with code, formulas and addresses blanked out, in the same places."""
    return NO_PROSE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def in_code(text: str) -> set[str]:
    """The numbers of the page's code, but for blocks that nobody runs."""
    bodies = [found[0] for found in NO_PROSE.finditer(text) if re.match("`[^`]", found[0])]
    bodies += [found["body"] for found in FENCED.finditer(text) if RUN.fullmatch(found["language"].strip())]
    return {plain(number) for body in bodies for number in IN_CODE.findall(body)}


def plain(number: str) -> str:
    """Its digits as Python reads them."""
    return number.replace(",", "").replace("_", "")


def numbers_in(text: str) -> list[str]:
    """All numbers of any text, without signs that group digits."""
    return [plain(found) for found in ANY.findall(text)]


def stated(text: str) -> list[tuple[int, int]]:
    """Where each number that needs a line begins and ends."""
    words, shown = prose(text), in_code(text)
    ruled = bytearray(len(words))
    for start, end in (one.span() for rule in RULES for one in rule.finditer(words)):
        ruled[start:end] = b"1" * (end - start)
    found = []
    for one in NUMBER.finditer(words):
        start, end = one.span()
        if not all(ruled[start:end]) and (len(plain(one[0])) < 2 or plain(one[0]) not in shown):
            found.append((start, end))
    return found


def covered(text: str, said: str) -> list[tuple[int, int]]:
    """Where a listed number stands, or the words around some; line breaks count as spaces."""
    words = prose(text)
    if NUMBER.fullmatch(said):
        return [one.span() for one in NUMBER.finditer(words) if one[0] == said]
    return [one.span() for one in re.finditer(r"\s+".join(map(re.escape, said.split())), words)]
