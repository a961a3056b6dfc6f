"""Names of objects and resources: fitted to limits without collisions, with namespaces."""

from hypothesis import given
from hypothesis import strategies as st

from infra.common import names
from infra.common.kubernetes_objects import logical_name, placed, type_token

NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=200)


@given(NAMES)
def test_a_fitted_name_is_within_the_limit_and_a_short_one_is_unchanged(name: str) -> None:
    fitted = names.fit(name)
    assert len(fitted) <= names.MAX_LABEL
    assert fitted == name or len(name) > names.MAX_LABEL


@given(NAMES, NAMES)
def test_two_names_are_never_merged(one: str, other: str) -> None:
    assert (names.fit(one) == names.fit(other)) == (one == other)


def test_the_longest_names_of_a_spec_fit_into_a_label() -> None:
    assert len(names.team_namespace("t" * 40)) <= names.MAX_LABEL
    assert len(names.node("p" * 40, 4999)) <= names.MAX_LABEL


def test_type_tokens_are_those_of_the_kubernetes_provider() -> None:
    assert type_token("v1", "Namespace") == "kubernetes:core/v1:Namespace"
    assert type_token("apps/v1", "Deployment") == "kubernetes:apps/v1:Deployment"


def test_an_object_without_a_namespace_gets_the_installs_one() -> None:
    role = placed({"kind": "Role", "metadata": {"name": "r"}}, "there")
    assert logical_name(role) == "there/r"


def test_a_namespace_on_what_has_none_is_dropped() -> None:
    hooks = {"kind": "MutatingWebhookConfiguration", "metadata": {"name": "h", "namespace": "there"}}
    assert logical_name(placed(hooks, "there")) == "h"
