"""What the tests say of a deployment, with the characters that YAML and Markdown stumble over."""

ABOUT = {
    "name": "Digits: a *small* model",
    "data_curators": ["Example Lab", "Another"],
    "intended_use": "Reading digits",
    "data_product_region": "Global",
    "description": 'It says "hello"\nand 1e-5 # no comment; \\(\\epsilon\\) is a formula',
    "publication_date": "2026-11-15",
    "registry_authors": ["A. Person"],
}
