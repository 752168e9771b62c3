"""What a gate found, in the forms that build servers read: JUnit XML and GitHub's workflow commands."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from calipers.gate.outcome import Checked, Outcome

_TITLES = {
    Outcome.WITHIN: "Privacy budget kept",
    Outcome.UNPROVEN: "Privacy budget not proven",
    Outcome.EXCEEDED: "Privacy budget exceeded",
    Outcome.UNCERTIFIED: "Privacy could not be certified",
}


def junit(found: Sequence[Checked], date: str) -> str:
    """One test case for each run: a failure where the budget is not kept, an error where nothing is certified."""
    failures = [one for one in found if one.outcome in (Outcome.UNPROVEN, Outcome.EXCEEDED)]
    errors = [one for one in found if one.outcome is Outcome.UNCERTIFIED]
    counts = {"tests": str(len(found)), "failures": str(len(failures)), "errors": str(len(errors)), "skipped": "0"}
    suites = ElementTree.Element("testsuites", {"name": "calipers check", **counts})
    suite = ElementTree.SubElement(
        suites, "testsuite", {"name": "calipers check", "timestamp": date.removesuffix("Z"), "time": "0", **counts}
    )
    for one in found:
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": "calipers.check", "name": _printable(one.name), "time": "0"}
        )
        if one.outcome is not Outcome.WITHIN:
            kind = "error" if one.outcome is Outcome.UNCERTIFIED else "failure"
            problem = ElementTree.SubElement(
                case, kind, {"type": one.outcome.value, "message": _printable(one.sentence)}
            )
            problem.text = _printable(one.sentence)
        else:
            ElementTree.SubElement(case, "system-out").text = _printable(one.sentence)
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def github_commands(found: Sequence[Checked]) -> str:
    """A workflow command for each run, which GitHub shows next to the run file in a pull request."""
    return "".join(
        f"::{_level(one)} file={_property(one.name)},title={_property(_TITLES[one.outcome])}::{_data(one.sentence)}\n"
        for one in found
    )


def _level(one: Checked) -> str:
    if one.outcome is not Outcome.WITHIN:
        return "error"
    return "warning" if one.warned else "notice"


def github_refusal(message: str) -> str:
    """The workflow command where nothing was decided; what a file says cannot be another command inside it."""
    said = " ".join(message.split()).replace("::", ": :").replace("##[", "## [")
    return f"::error title=Privacy budget not checked::{_data(said)}\n"


def _data(text: str) -> str:
    """GitHub's escapes of a message."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """GitHub's escapes of a property, in which a colon or a comma would end it."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _printable(text: str) -> str:
    """XML 1.0 has no place for control characters, nor for halves of surrogate pairs; both become escapes."""
    return "".join(
        sign if sign in "\t\n" or (sign >= " " and not "\ud800" <= sign <= "\udfff" and sign < "\ufffe")
        or sign > "\uffff" else sign.encode("unicode_escape", "backslashreplace").decode("ascii")
        for sign in text
    )  # fmt: skip
