"""The error classes are caught as the builtins that users know, and carry their notes."""

import pickle
import traceback

import pytest

from aotlite.ir import errors
from aotlite.ir.errors import AotliteError, ShapeError, noted

BUILTINS = {
    "AbsentError": (AttributeError,),
    "ShapeError": (ValueError,),
    "ArgumentError": (ValueError, TypeError),
    "RngError": (ValueError, TypeError),
    "DTypeError": (TypeError,),
    "IndexOutOfRangeError": (IndexError,),
    "AliasError": (RuntimeError,),
    "AutogradError": (RuntimeError,),
    "SubclassError": (TypeError,),
    "TokenError": (RuntimeError,),
    "TangentError": (RuntimeError,),
    "ProtocolError": (TypeError,),
    "UnsupportedError": (RuntimeError,),
    "DeviceError": (RuntimeError,),
    "BackendError": (RuntimeError,),
    "GuardError": (RuntimeError,),
    "LinAlgError": (RuntimeError,),
    "GraphError": (RuntimeError,),
    "ExportError": (RuntimeError,),
    "FreezeError": (RuntimeError,),
    "FormatError": (ValueError,),
    "MissingExtraError": (ImportError,),
    "OutOfMemoryError": (MemoryError,),
}


def test_every_error_class_is_in_the_table_of_builtins():
    classes = set(errors.__all__) - {"AotliteError", "ExportWarning", "noted"}
    assert set(BUILTINS) == classes


@pytest.mark.parametrize("name", BUILTINS)
def test_error_is_caught_as_aotlite_error_and_as_its_builtins(name):
    for caught in (AotliteError, *BUILTINS[name]):
        with pytest.raises(caught, match="what happened"):
            raise getattr(errors, name)("what happened")


@pytest.mark.parametrize("name", BUILTINS)
def test_error_survives_pickling(name):
    error = pickle.loads(pickle.dumps(getattr(errors, name)("what happened")))
    assert name == type(error).__name__
    assert "what happened" == str(error)


def test_noted_returns_the_same_error_with_notes_in_order_and_without_nones():
    error = ShapeError("view: numel is 6, expected 8")
    assert error is noted(error, "first", None, "second")
    assert ["first", "second"] == error.__notes__


def test_notes_are_printed_below_the_message():
    error = noted(ShapeError("view: numel is 6, expected 8"), "in f, line 3")
    printed = "".join(traceback.format_exception_only(error))
    assert "aotlite.ir.errors.ShapeError: view: numel is 6, expected 8\nin f, line 3\n" == printed
