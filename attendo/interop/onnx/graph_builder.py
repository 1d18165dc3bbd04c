"""Builder of ONNX graphs, node by node, in fp32 or int8, with the int8 weight scales.

x86 processors without VNNI multiply unsigned by signed bytes and add adjacent pairs in 16 bits, up to 32,767.
255 · 127 + 255 · 127 overflows silently. Only two adjacent large weights of the same sign overflow, which is rare.
So the scale of a column follows from its largest weight and from its largest sum of an adjacent pair.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

ActivationRanges = Mapping[Any, float]  # largest absolute input of each site
Array = NDArray[Any]
OnnxShape = list[int | str]
ORT_DOMAIN = "com.microsoft"  # operators of ONNX Runtime
_OPSET, _ORT_OPSET, _IR = 23, 1, 11
_TYPES = {"float": TensorProto.FLOAT, "long": TensorProto.INT64, "int": TensorProto.INT32, "bool": TensorProto.BOOL}
_ROOT_OF_TWO = np.float32(np.sqrt(2.0))
_ACTIVATIONS_OF_GATES = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "reglu": "relu"}
_TINY = np.float32(1e-30)  # lower bound of a scale
_MAX_INT8, _MAX_PAIR_SUM = 127, 127.9  # after rounding, a pair sum is at most 128, and 255 · 128 < 2¹⁵


@dataclass
class GraphBuilder:
    """Nodes and constants of a graph under construction. Values are referred to by name.

    Matrix products at sites in `ranges` are quantised to int8.
    """

    ranges: ActivationRanges
    _nodes: list["NodeProto"] = field(default_factory=list)
    _constants: dict[tuple[str, tuple[int, ...], bytes], str] = field(default_factory=dict)
    _inputs: list["ValueInfoProto"] = field(default_factory=list)
    _outputs: list["ValueInfoProto"] = field(default_factory=list)
    _weights: list[TensorProto] = field(default_factory=list)
    _quantized_inputs: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def input(self, name: str, dtype: str, shape: OnnxShape) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, _TYPES[dtype], shape))
        return name

    def output(self, name: str, dtype: str, shape: OnnxShape, value: str | None = None) -> None:
        """Declare an output. If `value` is given, that value is renamed to `name`."""
        for node in self._nodes if value is not None else ():
            for names in (node.input, node.output):
                names[:] = [name if each == value else each for each in names]
        self._outputs.append(helper.make_tensor_value_info(name, _TYPES[dtype], shape))

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output and return the output's name."""
        return self.nodes(operator, *inputs, count=1, **attributes)[0]

    def nodes(self, operator: str, *inputs: str, count: int, names: Sequence[str] = (), **attributes: Any) -> list[str]:
        """Add a node and return the names of its `count` outputs. `names` are the last of them."""
        outputs = [*(f"{operator}_{len(self._nodes)}_{n}" for n in range(count - len(names))), *names]
        self._nodes.append(helper.make_node(operator, list(inputs), outputs, **attributes))
        return outputs

    def constant(self, value: Any, dtype: str = "float32") -> str:
        """Add a small array. Equal arrays are stored once."""
        array = np.asarray(value, dtype)
        key = (dtype, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._weight(array)
        return self._constants[key]

    def model(self) -> "ModelProto":
        graph = helper.make_graph(self._nodes, "attendo", self._inputs, self._outputs, self._weights)
        versions = [helper.make_opsetid("", _OPSET), helper.make_opsetid(ORT_DOMAIN, _ORT_OPSET)]
        return helper.make_model(graph, opset_imports=versions, ir_version=_IR, producer_name="attendo")

    def table(self, weight: Tensor) -> str:
        """Add a lookup table."""
        return self._weight(to_numpy(weight))

    def linear(self, x: str, site: object, weight: Tensor, bias: Tensor | None, never_negative: bool = False) -> str:
        """Return x Wᵀ + b for x [..., in]. `site` is the key of x in `ranges`.

        `never_negative` applies ReLU to x first.
        """
        if site in self.ranges:
            return self._int8_linear(x, self.ranges[site], weight, bias, never_negative)
        product = self.node("MatMul", self.node("Relu", x) if never_negative else x, self._weight(to_numpy(weight).T))
        return product if bias is None else self.node("Add", product, self._weight(to_numpy(bias)))

    def norm(self, x: str, norm: nn.Module) -> str:
        if isinstance(norm, nn.Identity):
            return x
        with_mean = isinstance(norm, nn.LayerNorm)
        gains = [self._weight(to_numpy(norm.get_parameter(each))) for each in ("weight", "bias")[: 1 + with_mean]]
        kind = "LayerNormalization" if with_mean else "SimplifiedLayerNormalization"
        return self.node(kind, x, *gains, axis=-1, epsilon=float(norm.eps))  # type: ignore[arg-type]

    def activate(self, x: str, activation: str) -> str:
        if activation == "gelu":
            half = self.node("Mul", x, self.constant(0.5))
            error = self.node("Erf", self.node("Div", x, self.constant(_ROOT_OF_TWO)))
            return self.node("Mul", half, self.node("Add", error, self.constant(1.0)))
        if activation == "gelu_tanh":
            return self.node("Gelu", x, approximate="tanh")
        if activation == "silu":
            return self.node("Mul", x, self.node("Sigmoid", x))
        if activation == "relu":
            return self.node("Relu", x)
        gate, value = self.nodes("Split", x, count=2, axis=-1, num_outputs=2)
        return self.node("Mul", self.activate(gate, _ACTIVATIONS_OF_GATES[activation]), value)

    def cast(self, x: str, dtype: str) -> str:
        return self.node("Cast", x, to=_TYPES[dtype])

    def reshape(self, x: str, *shape: int) -> str:
        """Reshape. 0 keeps a dimension, -1 infers it."""
        return self.node("Reshape", x, self.constant(shape, "int64"))

    def _int8_linear(self, x: str, max_abs: float, weight: Tensor, bias: Tensor | None, never_negative: bool) -> str:
        """Multiply in int8. Each column of the matrix has a scale; x has one static scale, so rows are independent.

        x is uint8 and the matrix int8: the only pairing for which ONNX Runtime uses VNNI instructions, and the
        fastest without them.
        """
        most, zero = (255, 0) if never_negative else (127, 128)
        given = self.constant(max(max_abs, float(_TINY)) / most), self.constant(zero, "uint8")
        if (x, *given) not in self._quantized_inputs:
            self._quantized_inputs[x, *given] = self.node("QuantizeLinear", x, *given)
        step = int8_scales(weight.detach().float())
        matrix = self._weight(to_numpy((weight / step).round()).T.astype(np.int8))
        return self.node(
            "MatMulIntegerToFloat",
            *(self._quantized_inputs[x, *given], matrix, given[0], self._weight(to_numpy(step.squeeze(1))), given[1]),
            *("", "" if bias is None else self._weight(to_numpy(bias))),
            domain=ORT_DOMAIN,
        )

    def _weight(self, array: Array) -> str:
        name = f"constant_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name


def to_numpy(weight: Tensor) -> Array:
    return weight.detach().float().cpu().numpy()


def int8_scales(matrix: Float[Tensor, "N K"]) -> Float[Tensor, "N 1"]:
    """Return the int8 scale of each row; a row produces one component of the product."""
    pairs = F.pad(matrix, (0, matrix.size(1) % 2)).unflatten(1, (-1, 2)).sum(-1)
    largest, largest_pair = (each.abs().amax(1, keepdim=True) for each in (matrix, pairs))
    return (largest / _MAX_INT8).maximum(largest_pair / _MAX_PAIR_SUM).clamp(min=1e-30)
