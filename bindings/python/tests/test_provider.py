import gc
import os
import threading
import unittest

import nopal
from nopal import Type

from .listening import listening_to, semaphore


class ProviderTest(unittest.TestCase):
    def test_life(self):
        provider = nopal.Provider("life")
        probe = provider.add_probe("event", int)
        self.assertEqual((provider.path, provider.is_loaded, probe.is_enabled), ("", False, False))
        for _ in range(2):
            provider.load()
            provider.load()
            self.assertRegex(provider.path, rf"^/proc/{os.getpid()}/fd/\d+$")
            self.assertTrue(os.path.exists(provider.path))
            self.assertTrue(provider.is_loaded)
            provider.unload()
            self.assertEqual((provider.path, provider.is_loaded), ("", False))
        provider.close()
        provider.close()
        self.assertFalse(probe.fire(1))
        with self.assertRaises(nopal.NopalError):
            provider.load()
        with self.assertRaises(nopal.NopalError):
            provider.add_probe("late")

    def test_with_statement(self):
        provider = nopal.Provider("within")
        probe = provider.add_probe("event", int)
        with provider:
            with listening_to(probe) as fired:
                self.assertTrue(probe.fire(1))
            self.assertEqual(fired, [("within:event", (1,))])
        self.assertFalse(probe.is_enabled)

    def test_probes_added_later_are_live(self):
        with nopal.Provider("growing") as provider:
            first = provider.add_probe("first", int)
            before = semaphore(first)
            second = provider.add_probe("second", int)
            with listening_to(first, second) as fired:
                self.assertTrue(first.fire(1) and second.fire(2))
                self.assertEqual(before.value, 1)
            self.assertEqual(len(fired), 2)

    def test_several_providers_of_one_name(self):
        with nopal.Provider("twins") as one, nopal.Provider("twins") as other:
            here, there = one.add_probe("event", int), other.add_probe("event", str)
            with listening_to(here):
                self.assertTrue(here.fire(1))
                self.assertFalse(there.fire("a"))
            self.assertNotEqual(one.path, other.path)

    def test_names(self):
        provider = nopal.Provider("names")
        probe = provider.add_probe("same", int)
        self.assertIs(provider.add_probe("same", int), probe)
        self.assertIs(provider.probes["same"], probe)
        with self.assertRaisesRegex(ValueError, "already declared"):
            provider.add_probe("same", str)
        for bad in (None, 1, b"bytes"):
            with self.assertRaises(TypeError):
                nopal.Provider(bad)
        with self.assertRaises(nopal.NopalError):
            nopal.Provider("")
        with self.assertRaises(nopal.NopalError):
            provider.add_probe("")

    def test_types_that_are_none(self):
        provider = nopal.Provider("odd")
        for bad in (list, None, "int", 7, [int]):
            with self.assertRaisesRegex(TypeError, "possible are int, float"):
                provider.add_probe("event", bad)

    def test_twelve_arguments_and_no_more(self):
        with nopal.Provider("many") as provider:
            twelve = provider.add_probe("twelve", *[int] * 12)
            with listening_to(twelve) as fired:
                self.assertTrue(twelve.fire(*range(12)))
            self.assertEqual(fired[0][1], tuple(range(12)))
            provider.add_probe("six", *[bytes] * 6)
            for types in ([int] * 13, [bytes] * 7, [str] * 50):
                with self.assertRaisesRegex(ValueError, "12 are possible"):
                    provider.add_probe("more", *types)

    # Type, values that fit, values that do not and the error.
    VALUES = [
        (int, [0, -1, 2**63 - 1, -(2**63), True], [(2**63, OverflowError), (1.0, TypeError), ("1", TypeError)]),
        (str, ["", "text", "a\0b", "ü", "\udcff", b"bytes"], [(1, TypeError), (None, TypeError)]),
        (float, [0.5, -1e300, float("nan"), float("inf"), 3], [("0.5", TypeError), (10**400, OverflowError)]),
        (bytes, [b"", b"\0\1", bytearray(b"\0\2"), memoryview(b"abcd")[::2]], [("text", TypeError), (1, TypeError)]),
        (Type.INT8, [-128, 127], [(-129, OverflowError), (128, OverflowError)]),
        (Type.UINT8, [0, 255], [(-1, OverflowError), (256, OverflowError)]),
        (Type.INT16, [-(2**15)], [(2**15, OverflowError)]),
        (Type.UINT16, [2**16 - 1], [(2**16, OverflowError)]),
        (Type.INT32, [-(2**31)], [(2**31, OverflowError)]),
        (Type.UINT32, [2**32 - 1], [(2**32, OverflowError)]),
        (Type.INT64, [-(2**63)], [(2**63, OverflowError)]),
        (Type.UINT64, [2**64 - 1], [(2**64, OverflowError), (-1, OverflowError)]),
        (Type.FLOAT, [1.5, 2, 1e300], [("1.5", TypeError), (10**400, OverflowError)]),
        (Type.DOUBLE, [1.5], [(None, TypeError)]),
        (Type.STRING, ["text"], [(1, TypeError)]),
        (Type.BYTES, [b"b"], [("b", TypeError)]),
    ]

    def test_values_are_checked_whether_or_not_somebody_listens(self):
        with nopal.Provider("values") as provider:
            for i, (declared, good, bad) in enumerate(self.VALUES):
                probe = provider.add_probe(f"probe{i}", declared)

                def check(fires, probe=probe, good=good, bad=bad, declared=declared):
                    for value in good:
                        self.assertIs(probe.fire(value), fires, (declared, value))
                    for value, error in bad:
                        with self.assertRaises(error, msg=(declared, value)):
                            probe.fire(value)

                check(False)
                with listening_to(probe):
                    check(True)

    def test_the_number_of_values_is_checked(self):
        with nopal.Provider("counted") as provider:
            probe = provider.add_probe("two", int, str)
            for values in ((), (1,), (1, "a", 2)):
                with self.assertRaisesRegex(TypeError, "takes 2 values"):
                    probe.fire(*values)

    def test_a_function_is_called_only_when_somebody_listens(self):
        with nopal.Provider("lazy") as provider:
            probe = provider.add_probe("event", int, str)
            one = provider.add_probe("one", int)
            calls = []

            def values():
                calls.append(1)
                return len(calls), "costly"

            self.assertFalse(probe.fire_lazy(values))
            self.assertEqual(calls, [])
            with listening_to(probe, one) as fired:
                self.assertTrue(probe.fire_lazy(values))
                self.assertTrue(one.fire_lazy(lambda: 7))
            self.assertEqual(fired, [("lazy:event", (1, "costly")), ("lazy:one", (7,))])

    def test_firing_after_unload_does_nothing(self):
        provider = nopal.Provider("unloaded")
        probe = provider.add_probe("event", int)
        self.assertFalse(probe.fire(1))
        provider.load()
        with listening_to(probe):
            self.assertTrue(probe.fire(1))
            provider.unload()
            self.assertFalse(probe.is_enabled)
            self.assertFalse(probe.fire(1))
            provider.load()
        provider.close()

    def test_every_value_of_the_counter_counts(self):
        with nopal.Provider("counter") as provider:
            probe = provider.add_probe("event")
            counter = semaphore(probe)
            for value in (0, 1, 256, 65535, 0):
                counter.value = value
                self.assertEqual(probe.is_enabled, value != 0)


class StressTest(unittest.TestCase):
    def test_a_thousand_probes(self):
        provider = nopal.Provider("thousand")
        probes = [provider.add_probe(f"probe{i}", int, str) for i in range(1000)]
        with provider:
            with listening_to(*probes) as fired:
                self.assertTrue(all(probe.fire(i, str(i)) for i, probe in enumerate(probes)))
            self.assertEqual(len(fired), 1000)
        self.assertFalse(any(probe.is_enabled for probe in probes))

    def test_the_collector_at_every_step(self):
        thresholds = gc.get_threshold()
        gc.set_threshold(1, 1, 1)
        try:
            with nopal.Provider("collected") as provider:
                probe = provider.add_probe("event", str, bytes, float)
                with listening_to(probe) as fired:
                    for i in range(200):
                        self.assertTrue(probe.fire(f"text {i}" * 30, b"b\0%d" % i, i / 2))
                self.assertEqual(fired[199][1][1:], (b"b\x00199", 99.5))
        finally:
            gc.set_threshold(*thresholds)

    def test_threads(self):
        with nopal.Provider("threads") as provider:
            probe = provider.add_probe("event", int, str)

            def work(n):
                for i in range(500):
                    probe.fire(i, f"thread {n}")

            with listening_to(probe) as fired:
                run_all(threading.Thread(target=work, args=(n,)) for n in range(8))
            self.assertEqual(len(fired), 4000)

    def test_threads_that_fire_while_another_closes(self):
        for _ in range(100):
            provider = nopal.Provider("closing")
            probe = provider.add_probe("event", int, str)
            provider.load()
            semaphore(probe).value = 1

            def work(probe=probe):
                for i in range(50):
                    probe.fire(i, "text")

            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            provider.close()
            for thread in threads:
                thread.join()
            self.assertFalse(probe.is_enabled)

    def test_providers_leave_nothing_behind(self):
        def cycle():
            provider = nopal.Provider("passing")
            provider.add_probe("event", int)
            provider.load()
            provider.close()

        cycle()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(200):
            cycle()
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)

    def test_a_forked_child_has_the_probes_and_a_life_of_its_own(self):
        with nopal.Provider("forked") as provider:
            probe = provider.add_probe("event", int)
            counter = semaphore(probe)
            counter.value = 1
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    results = [probe.is_enabled, probe.fire(1), f"/{os.getpid()}/" in provider.path]
                    late = provider.add_probe("late", str)
                    results += [late.is_enabled, provider.unload(), probe.fire(2), nopal.new_id() >> 32 == os.getpid()]
                    provider.close()
                    os.write(writer, repr(results).encode())
                finally:
                    os._exit(0)
            os.close(writer)
            with os.fdopen(reader, "rb") as answer:
                self.assertEqual(answer.read().decode(), "[True, True, True, False, None, False, True]")
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertTrue(probe.fire(3))
            counter.value = 0


def run_all(threads):
    threads = list(threads)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    unittest.main()
