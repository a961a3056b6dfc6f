"""The metadata of the policies, and the table that it makes in docs/policies.md."""

from policies.catalogue import PAGE, updated
from policies.pack import POLICIES


def test_the_table_in_the_docs_is_made_from_the_metadata() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert updated(page) == page, "run `python -m policies.catalogue`"


def test_every_policy_has_a_reason_a_fix_and_frameworks() -> None:
    for policy in POLICIES:
        for text in (policy.title, policy.reason, policy.remedy):
            assert len(text) > 10, policy.name
        assert policy.title[-1] != "." and policy.reason[-1] == "." and policy.remedy[-1] == ".", policy.name
        assert policy.frameworks, policy.name
        assert all(schema.get("description") for schema in policy.parameters.values()), policy.name
