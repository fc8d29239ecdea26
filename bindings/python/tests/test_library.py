"""How the native library is found, and what happens without it. Each case is a process of its own."""

import os
import re
import shutil
import tempfile
import unittest

from nopal import _library

from .listening import SOURCE, python

USE = """
import nopal
from nopal import stapsdt
try:
    shop = nopal.Provider("shop")
    sale = shop.add_probe("sale", id=int)
    shop.load()
    @nopal.latency("shop")
    def sell(id):
        return id
    with nopal.latency("shop", "pay"):
        pass
    def lazy():
        raise RuntimeError("never")
    old = stapsdt.Provider("old")
    first = old.add_probe("first", stapsdt.ArgTypes.int64)
    print(sell(id=3), sale.is_enabled, sale.fire(1), sale.fire_lazy(lazy), old.load(), first.fire("a"), shop.path != "")
    try:
        sale.fire("one")
    except TypeError:
        print("checked")
    shop.unload()
    print(sale.fire(2), shop.close())
except nopal.LibraryMissing as error:
    print("missing:", error)
"""
NO_OPS = "3 False False False False False False\nchecked\nFalse None\n"
WORKS = NO_OPS.replace("False\nchecked", "True\nchecked")
NOWHERE = {"NOPAL_LIBRARY": "/nowhere/libnopal.so"}


def found():
    """The library of the tests, by whatever way it was found."""
    _library.native()
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return re.search(r"/\S*libnopal\.so\S*", maps.read()).group()


class LibraryTest(unittest.TestCase):
    def test_named_by_file_or_folder(self):
        for path in (found(), os.path.dirname(found())):
            self.assertEqual(python(USE, NOPAL_LIBRARY=path), (WORKS, "", 0))

    def test_beside_the_package_and_by_the_system(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(os.path.join(SOURCE, "nopal"), os.path.join(folder, "nopal"))
            by_system = python(USE, NOPAL_LIBRARY=None, PYTHONPATH=folder, LD_LIBRARY_PATH=os.path.dirname(found()))
            self.assertEqual(by_system, (WORKS, "", 0))
            shutil.copy(found(), os.path.join(folder, "nopal/libnopal.so"))
            shown = USE + "print([line.split()[-1] for line in open('/proc/self/maps') if 'libnopal' in line][0])"
            beside = python(shown, NOPAL_LIBRARY=None, PYTHONPATH=folder)
            self.assertEqual(beside, (WORKS + os.path.join(folder, "nopal/libnopal.so\n"), "", 0))

    def test_a_missing_library_is_one_clear_error_when_the_first_provider_is_made(self):
        out, err, status = python(USE, **NOWHERE)
        self.assertEqual((err, status), ("", 0))
        for part in ("missing: ", "/nowhere/libnopal.so: not there", "NOPAL_LIBRARY", "NOPAL=off"):
            self.assertIn(part, out)
        self.assertEqual(python("import nopal; print(nopal.__version__)", **NOWHERE), ("0.1.0\n", "", 0))

    def test_a_file_that_is_no_library_or_another_one(self):
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(b"not an object")
            file.flush()
            self.assertIn("missing: ", python(USE, NOPAL_LIBRARY=file.name)[0])
        with open("/proc/self/maps", encoding="utf-8") as maps:
            libc = re.search(r"/\S*/libc\.so\.6", maps.read()).group()
        self.assertIn("not one that this package can use", python(USE, NOPAL_LIBRARY=libc)[0])

    def test_off(self):
        for value in ("off", "OFF", "0", "false", "no"):
            self.assertEqual(python(USE, NOPAL=value, **NOWHERE), (NO_OPS, "", 0))

    def test_other_wishes_are_told(self):
        out, err, status = python(USE, NOPAL="bogus", NOPAL_LIBRARY=found())
        self.assertEqual((out, status), (WORKS, 0))
        self.assertEqual(err.count("NOPAL=bogus means nothing; possible are `off` and `optional`"), 1, err)
        self.assertEqual(python(USE, NOPAL="on", NOPAL_LIBRARY=found()), (WORKS, "", 0))

    def test_optional(self):
        out, err, status = python(USE, NOPAL="optional", **NOWHERE)
        self.assertEqual((out, status), (NO_OPS, 0))
        self.assertEqual(err.count("static tracing does nothing"), 1, err)
        self.assertEqual(python(USE, NOPAL="optional", NOPAL_LIBRARY=found()), (WORKS, "", 0))

    def test_macos_is_a_no_op(self):
        self.assertEqual(python("import sys; sys.platform = 'darwin'\n" + USE, **NOWHERE), (NO_OPS, "", 0))


if __name__ == "__main__":
    unittest.main()
