import pytest

pytestmark = pytest.mark.training
