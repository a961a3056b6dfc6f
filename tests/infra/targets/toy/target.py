from catalog import TargetPurchases
from infra.targets.features import Feature
from infra.targets.target import Target
from tests.infra.targets.toy.stackfile import CHECKS, ToySpec

TARGET = Target(
    kind="toy",
    spec=ToySpec,
    validators=CHECKS,
    cost=TargetPurchases(lambda _stack: iter(()), nothing_bought="is a toy"),
    features=frozenset({Feature.SPOT_CAPACITY}),
    cluster="tests.infra.targets.toy.cluster:ToyCluster",
    account="tests.infra.targets.toy.account:ToyAccount",
)
