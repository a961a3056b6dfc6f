"""CPU time of the pack per resource, from the request's bytes to the answer's; it grows linearly."""

import json
import time
from typing import Any

from pulumi.runtime.proto import analyzer_pb2

from policies.analyzer import Analyzer
from policies.pack import POLICIES
from tests.policies.corpus import CONFIG, Twin, load, with_unknown

UNKNOWN_STRING = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"


def encoded(twin: Twin) -> bytes:
    request = analyzer_pb2.AnalyzeRequest(
        type=twin.type, name=twin.name, urn=f"urn:pulumi:s::p::{twin.type}::n"
    )
    request.properties.update(with_unknown(twin.props, UNKNOWN_STRING))
    return bytes(request.SerializeToString())


REQUESTS = [encoded(case.clean) for case in load()]


def seconds(num_resources: int) -> float:
    """Return the CPU time of calls for this number of resources, which repeat the corpus."""
    analyzer = Analyzer(POLICIES)
    config = {key: json.dumps(value) for key, value in CONFIG.items()}
    context: Any = None
    analyzer.ConfigureStack(analyzer_pb2.AnalyzerStackConfigureRequest(config=config), context)
    analyzer.Configure(analyzer_pb2.ConfigureAnalyzerRequest(), context)
    begin = time.process_time()
    for index in range(num_resources):
        request = analyzer_pb2.AnalyzeRequest.FromString(REQUESTS[index % len(REQUESTS)])
        analyzer.Analyze(request, context).SerializeToString()
    return time.process_time() - begin


ROUNDS = 10
"""Number of measurements, of which the fastest counts: other load of the host only slows them down."""


def test_a_resource_takes_less_than_half_a_millisecond() -> None:
    assert any(seconds(1000) < 0.5 for _ in range(ROUNDS))


def test_the_time_grows_no_faster_than_the_number_of_resources() -> None:
    assert any(seconds(4000) < 8 * seconds(500) * 1.5 for _ in range(ROUNDS))
