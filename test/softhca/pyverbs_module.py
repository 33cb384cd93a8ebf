# SPDX-License-Identifier: BSD-3-Clause
"""Runs modules of rdma-core's own test suite and prints a line for each test as it ends: its
outcome, its name and, where it did not pass, the reason. Tests draw random sizes and flags: each is
seeded by its name, so that an outcome does not change from run to run.

Usage: pyverbs_module.py DIRECTORY MODULE..., with the suite's files in DIRECTORY.
"""

import importlib.machinery
import os
import random
import sys
import unittest


class Outcomes(unittest.TestResult):
    """unittest's result that tells each test's outcome at once: a crash leaves the rest to see."""

    def startTest(self, test):
        super().startTest(test)
        random.seed(test.id() + os.environ.get("PYVERBS_SEED", ""))

    @staticmethod
    def tell(outcome, test, reason=""):
        print(outcome, test.id().removeprefix("tests.test_"), " ".join(reason.split()), flush=True)

    def addSuccess(self, test):
        self.tell("pass", test)

    def addSkip(self, test, reason):
        self.tell("skip", test, reason)

    def addFailure(self, test, err):
        self.tell("fail", test, f"{err[0].__name__}: {err[1]}")

    addError = addFailure


def main():
    directory, modules = sys.argv[1], sys.argv[2:]
    del sys.argv[1:]
    sys.path.insert(0, directory)
    # As the suite's run_tests.py loads it.
    init = os.path.join(directory, "__init__.py")
    importlib.machinery.SourceFileLoader("tests", init).load_module()
    from args_parser import parser  # the suite's own

    parser.parse_args()
    loader = unittest.TestLoader()
    result = Outcomes()
    for module in modules:
        loader.loadTestsFromName(f"tests.{module}").run(result)
    # pyverbs' destructors complain when the interpreter goes down.
    sys.stdout.flush()
    os._exit(0)


main()
