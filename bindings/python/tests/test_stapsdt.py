import unittest

from nopal import stapsdt

from .listening import semaphore


class StapsdtTest(unittest.TestCase):
    def test_its_names_and_answers(self):
        provider = stapsdt.Provider("pythonapp")
        probe = provider.add_probe("first", stapsdt.ArgTypes.uint64, stapsdt.ArgTypes.int32)
        self.assertIsInstance(probe, stapsdt.Probe)
        self.assertEqual(str(provider), "pythonapp")
        self.assertIs(probe.fire("text", 1), False)
        self.assertIs(provider.load(), False)
        self.assertIs(probe.is_enabled, False)
        counter = semaphore(probe._probe)
        counter.value = 1
        self.assertIs(probe.is_enabled, True)
        for values in (("text", 1), (b"text", -1), (2**70, 2**40), (1,), (1, 2, 3), (), (1.5, True)):
            self.assertIs(probe.fire(*values), True, values)
        counter.value = 0
        self.assertIs(provider.unload(), False)
        self.assertIs(probe.fire("text", 1), False)

    def test_a_probe_outlives_its_provider(self):
        provider = stapsdt.Provider("gone")
        probe = provider.add_probe("event", stapsdt.ArgTypes.noarg)
        provider.load()
        del provider
        self.assertIs(probe.fire(), False)

    def test_numbers_of_types(self):
        self.assertEqual(
            {kind.name: kind.value for kind in stapsdt.ArgTypes},
            dict(noarg=0, uint8=1, int8=-1, uint16=2, int16=-2, uint32=4, int32=-4, uint64=8, int64=-8),
        )


if __name__ == "__main__":
    unittest.main()
