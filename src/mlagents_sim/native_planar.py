"""Structures by which C++ knows the arrays of bodies, sensors and frame stacks.

The arrays never move: their owners change them in place. Each structure has its twin of the same
name in a header of `mlagents_native/source`.
"""

import ctypes
import sys
from collections.abc import Sequence
from ctypes import CDLL, POINTER, Structure, c_char, c_double, c_int, c_int64, c_void_p
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mlagents_native.library import NativeError


class Doubles(c_void_p):
    """Address of an array of doubles."""

    dtype = np.dtype(np.float64)


class Integers(c_void_p):
    """Address of an array of 64-bit integers."""

    dtype = np.dtype(np.int64)


class Tags(c_void_p):
    """Address of an array of 8-bit integers."""

    dtype = np.dtype(np.int8)


class Bytes(c_void_p):
    """Address of an array of bytes."""

    dtype = np.dtype(np.uint8)


class Flags(c_void_p):
    """Address of an array of booleans."""

    dtype = np.dtype(np.bool_)


class Shared(Structure):
    """A structure that C++ reads: numbers, addresses of arrays, and other structures.

    Args:
        members: Values by name. Arrays and structures are kept alive; None is a null pointer.
    """

    def __init__(self, **members: Any) -> None:
        super().__init__()
        self._members = members
        kinds: dict[str, Any] = {name: kind for name, kind, *_ in self._fields_}
        for name, value in members.items():
            if isinstance(value, np.ndarray):
                value = _address(value, kinds[name].dtype, name)
            elif isinstance(value, Structure | ctypes.Array):
                value = ctypes.addressof(value)
            if value is not None:
                setattr(self, name, value)


class FixedArrays:
    """Base of objects whose arrays stay where they are: assigning to one copies into it."""

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute, or copy into the array that it is."""
        present = self.__dict__.get(name)
        if isinstance(present, np.ndarray):
            present[...] = value
        else:
            super().__setattr__(name, value)


def address(array: NDArray[Any] | None) -> int | None:
    """Return where the data of a contiguous array begin, None for no array."""
    if array is None:
        return None
    if array.flags.writeable and array.size:
        return ctypes.addressof(c_char.from_buffer(array.data))  # the fastest way
    where: int = array.ctypes.data
    return where


class Pool:
    """Arrays that are used again once no other object refers to them.

    New memory costs more time than filling it: the system hands it out page by page.
    """

    _MOST = 4

    def __init__(self) -> None:
        self._arrays: list[NDArray[Any]] = []

    def empty(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return an array with any contents."""
        for array in self._arrays:
            # The list, the loop and the argument know it. A view of it would, too.
            if array.shape == shape and array.dtype == dtype and sys.getrefcount(array) == 3:
                return array
        array = np.empty(shape, dtype)
        if len(self._arrays) == self._MOST:
            del self._arrays[0]
        self._arrays.append(array)
        return array


def array_of(kind: type[Structure], members: Sequence[Structure]) -> ctypes.Array[Any]:
    """Return structures in a row. What their members point to must live on elsewhere."""
    return (kind * len(members))(*members)


def indices(agents: slice | NDArray[np.intp], n_agents: int) -> NDArray[np.int64] | None:
    """Return the indices of agents as the native library reads them, None for all."""
    if isinstance(agents, slice):
        if agents == slice(None):
            return None
        agents = np.arange(n_agents)[agents]
    return np.ascontiguousarray(agents, np.int64)


def require_equal(native: object, reference: object, names: Sequence[str], *, of: str) -> None:
    """Raise unless the library and NumPy computed the same arrays, to the last bit.

    Args:
        native: Object whose arrays the library computed.
        reference: Equal object whose arrays NumPy computed.
        names: Names of the attributes to compare.
        of: What the attributes describe, for the message.

    Raises:
        NativeError: An array differs.
    """
    for name in names:
        require_same(getattr(native, name), getattr(reference, name), what=f"the {name} of {of}")


def require_same(found: NDArray[Any], expected: NDArray[Any], *, what: str) -> None:
    """Raise unless the library computed the same array as NumPy, to the last bit.

    Raises:
        NativeError: The array differs.
    """
    if not np.array_equal(found, expected):
        raise NativeError(
            f"it computes {what} differently than NumPy. Please report this with the name of your "
            "processor and compiler."
        )


def require_memory(result: int) -> int:
    """Return the result of a function; raise if it is below 0 for lack of memory.

    Raises:
        MemoryError: The library could not allocate its work space.
    """
    if result < 0:
        raise MemoryError("the native library has not enough memory for contacts or rays")
    return result


def _address(array: NDArray[Any], dtype: np.dtype[Any], name: str) -> int:
    if array.dtype != dtype or not array.flags.c_contiguous:
        raise ValueError(f"{name} must be contiguous and of {dtype}, but is of {array.dtype}")
    where: int = array.ctypes.data
    return where


def _fields(text: str, kind: Any) -> list[tuple[str, Any]]:
    return [(name, kind) for name in text.split()]


class Bodies(Shared):
    """`planar.Bodies`."""

    _fields_: ClassVar = [
        *_fields("n_areas n_bodies n_pairs has_walls is_falling", c_int64),
        ("wall_friction", c_double),
        *_fields("position velocity heading half reach", Doubles),
        *_fields("kept above climb grip fall pressed low high", Doubles),
        *_fields("is_solid touching touching_walls busy", Flags),
        ("pairs", Integers),
        *_fields("shares friction", Doubles),
    ]


class Ring(Shared):
    """`motion.Ring`."""

    _fields_: ClassVar = [
        *_fields("wall item n_slots", c_int64),
        *_fields("wall_m item_m far_m", c_double),
        ("slots", Doubles),
        *_fields("items near", Integers),
    ]


class Standing(Shared):
    """`standing.Standing`."""

    _fields_: ClassVar = [
        *_fields("n_supports n_zones loose carrier", c_int64),
        *_fields("half gain", c_double),
        *_fields("push_m_s air_push jump_height_m jump_steps", c_double),
        *_fields("jump_speed_per_m jump_change_m_s hold", c_double),
        *_fields("height climb fall jump_to jump_left tops boxes_at box_halves", Doubles),
        *_fields("is_cleared feet_over center_over on is_over_zone", Flags),
        *_fields("stood is_braked wants_to_jump", Flags),
        ("solid_pairs", Integers),
    ]


class Motion(Shared):
    """`motion.Motion`."""

    _fields_: ClassVar = [
        *_fields("bodies ring standing", c_void_p),
        ("pushes_first", c_int64),
        *_fields("forward right sine cosine static_grip dynamic_grip", Doubles),
        *_fields("watched_pairs watched_walls watched_bodies", Flags),
        ("middle", c_double * 2),
        ("extent", c_double * 2),
    ]


class TurningBoxes(Shared):
    """`turning.TurningBoxes`."""

    _fields_: ClassVar = [
        *_fields("n_areas n_boxes n_pairs", c_int64),
        ("friction", c_double),
        *_fields("position velocity heading spin", Doubles),
        ("is_solid", Flags),
        *_fields("floor half radius kept spin_kept turns lightness turning walls", Doubles),
        ("pairs", Integers),
        ("reach", Doubles),
    ]


class Pushers(Shared):
    """`pushers.Pushers`."""

    _fields_: ClassVar = [
        ("boxes", c_void_p),
        *_fields("n_members n_watched", c_int64),
        ("line", c_double),
        *_fields("forward right sine cosine", Doubles),
        ("arrived", Flags),
    ]


class Band(Structure):
    """`box_grid.Band`."""

    _fields_: ClassVar = [*_fields("x z at thickness end", c_double), ("tag", c_int64)]


class BoxGrid(Shared):
    """`box_grid.BoxGrid`."""

    _fields_: ClassVar = [
        ("boxes", c_void_p),
        *_fields("n_members n_cells n_tags n_bands", c_int64),
        *_fields("cell_m ahead_m", c_double),
        ("tags", Tags),
        ("bands", c_void_p),
    ]


class Circles(Shared):
    """`circles.Circles`."""

    _fields_: ClassVar = [
        *_fields("n_areas n_discs n_pairs n_walls", c_int64),
        *_fields("floor_friction friction", c_double),
        *_fields("position velocity spin fall radius lightness rolls bounce", Doubles),
        *_fields("kept arm floor_part floor_spin rise", Doubles),
        ("pairs", Integers),
        ("reach", Doubles),
        ("touching", Flags),
        *_fields("normal wall_center wall_half wall_heading", Doubles),
        ("clear", c_double * 2),
    ]


class Field(Shared):
    """`examples.soccer_field.Field`."""

    _fields_: ClassVar = [
        ("discs", c_void_p),
        ("n_players", c_int64),
        *_fields("kick_m_s goal_at_m goal_half_m", c_double),
        *_fields("heading forward right sine cosine", Doubles),
        ("kicks", Flags),
        ("at_ball", Integers),
        ("kick", Doubles),
        ("age", Integers),
        ("touched", Flags),
        ("touches", Integers),
    ]


class FieldView(Shared):
    """`examples.field_view.FieldView`."""

    _fields_: ClassVar = [
        ("field", c_void_p),
        *_fields("n_rays n_tags n_boxes n_goal_boxes", c_int64),
        *_fields("length radius player_m ball_m end_m side_m", c_double),
        ("directions", Doubles),
        ("tags", Tags),
        *_fields("center half heading", Doubles),
        ("targets", Integers),
    ]


class SeenBox(Shared):
    """`ray_view.Box`."""

    _fields_: ClassVar = [
        *_fields("body is_turned", c_int64),
        *_fields("center half heading", c_double * 2),
        ("radius", c_double),
        ("tag", c_int64),
        ("tags", Tags),
        *_fields("low high", Doubles),
    ]


class SeenDiscs(Shared):
    """`ray_view.Discs`."""

    _fields_: ClassVar = [
        ("count", c_int64),
        ("center", Doubles),
        ("hidden", Integers),
        ("tags", Tags),
        *_fields("radius height_m", c_double),
    ]


class Rays(Shared):
    """`ray_view.RayView`."""

    _fields_: ClassVar = [
        ("bodies", c_void_p),
        *_fields("n_members n_rays n_tags n_boxes has_room has_flight", c_int64),
        *_fields("length radius", c_double),
        ("directions", Doubles),
        *_fields("room_low room_high", c_double * 2),
        *_fields("room_radius room_edge_m", c_double),
        ("room_tag", c_int64),
        *_fields("boxes discs", c_void_p),
        ("unit_half_m", c_double),
        ("height", Doubles),
        *_fields("start_m slope", c_double),
    ]


class Forage(Shared):
    """`examples.food_floors.Floors`."""

    _fields_: ClassVar = [
        ("bodies", c_void_p),
        *_fields("n_foods frozen_steps n_eaten", c_int64),
        *_fields("walls_m food_radius_m touch_m bump laser_m laser_radius_m", c_double),
        *_fields("push_m_s push_shooting_m_s kept_shooting fast_m2_s2 kept_fast", c_double),
        *_fields("food touch right ahead sine cosine lost", Doubles),
        *_fields("falling frozen eaten", Integers),
        *_fields("is_shooting shoots", Flags),
    ]


class Grid(Shared):
    """`examples.food_collector.GridFoodCollector`."""

    _fields_: ClassVar = [
        *_fields("bodies discs", c_void_p),
        *_fields("n_cells n_tags wall_tag", c_int64),
        *_fields("cell_m half_height_m walls_m wall_thickness_m", c_double),
        ("agent_tags", Tags),
    ]


class Stack(Shared):
    """`frame_stack.FrameStack`."""

    _fields_: ClassVar = [
        *_fields("n_agents n_before frame_bytes start", c_int64),
        ("ring", Bytes),
    ]


def declare(functions: CDLL) -> None:
    """Declare the arguments and results of the functions."""
    functions.planar_move_bodies.argtypes = [POINTER(Bodies)]
    functions.planar_move_bodies.restype = None
    for name in ("planar_steer", "planar_move"):
        function = getattr(functions, name)
        function.argtypes, function.restype = [POINTER(Motion)], None
    for name in ("forage_act", "forage_move"):
        function = getattr(functions, name)
        function.argtypes, function.restype = [POINTER(Forage)], None
    functions.forage_run.argtypes = [POINTER(Forage), c_int64]
    functions.forage_run.restype = c_int64
    functions.planar_run.argtypes = [POINTER(Motion), c_int64]
    functions.planar_run.restype = c_int64
    functions.planar_see.argtypes = [POINTER(Rays), c_void_p, c_int64, c_void_p]
    functions.planar_see.restype = None
    pointer, number = c_void_p, c_int64
    for name, arguments in {
        "raster_polygons": [pointer, number, number, number, pointer, pointer],
        "raster_spheres": [pointer, pointer, number, number, number, pointer, pointer],
        "raster_paint": [pointer, *[number] * 3, *[pointer] * 5, number],
        "raster_shade": [pointer, pointer, number, number, *[pointer] * 3, number, number],
        "raster_stamp": [pointer, pointer, number, number, pointer, pointer, number, pointer],
    }.items():
        function = getattr(functions, name)
        function.argtypes, function.restype = arguments, None
    functions.planar_grid.argtypes = [POINTER(Grid), c_void_p, c_int64, c_void_p]
    functions.planar_grid.restype = None
    functions.planar_stack.argtypes = [POINTER(Stack), c_void_p, c_int64, c_void_p, c_void_p]
    functions.planar_stack.restype = None


def declare_field(functions: CDLL) -> None:
    """Declare the functions of a football field."""
    functions.field_steer.argtypes, functions.field_steer.restype = [POINTER(Field)], None
    functions.field_move.argtypes, functions.field_move.restype = [POINTER(Field)], c_int
    functions.field_run.argtypes = [POINTER(Field), c_int64]
    functions.field_run.restype = c_int64
