"""What pytest finds of the package: the fixture `probes`, which listens to this process.

    def test_a_sale_is_seen(probes):
        with probes("shop:*") as hits:
            checkout(cart)
        hits.assert_count("shop:sale", 1)
"""

import pytest

from . import testing


@pytest.fixture
def probes():
    """`nopal.testing.listen`."""
    return testing.listen
