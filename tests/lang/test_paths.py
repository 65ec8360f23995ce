import pytest

from lash.lang.syntax import nodes
from lash.lang.syntax.paths import children, node_at, path_text, site_id, walk
from lash.lang.syntax.span import Span

A, B, C = nodes.Variable("a"), nodes.Variable("b"), nodes.Variable("c")
SEED_REF = "lashlang:v1:sha256:3aee527c43ab71740bca1cb778d7561b14dd625a38aee41aec6ff7b412444ff3"
SEED_ENTRY = "2890eae94d062dbe7d7ddfcdf8ea67ef839ce1ba73f6baaa788ca12fcb776704:0"


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (nodes.Assign("x", (nodes.IndexStep(A), nodes.FieldStep("f"), nodes.IndexStep(B)), C), (A, B, C)),
        (nodes.ListComp(A, (nodes.ForClause("x", B), nodes.IfClause(C))), (B, C, A)),
        (nodes.SignalRun(A, "go", B), (A, B)),
        (nodes.If(A, B, C), (A, B, C)),
        (nodes.ReceiverCall(A, "op", (B, C)), (A, B, C)),
        (nodes.Start("p", (("x", A), ("y", B))), (A, B)),
        (nodes.Finish(None), ()),
    ],
)
def test_children(node: nodes.Expression, expected: tuple[nodes.Expression, ...]) -> None:
    """Children are in the order of evaluation."""
    assert children(node) == expected


def test_site_of_the_seed() -> None:
    """The id of the seed's only effect is the one in the specification."""
    assert site_id(SEED_REF, SEED_ENTRY, (0,), "terminal") == "terminal:f7c3b7a9c64ff4afa0b9540b"


def test_label_is_transparent() -> None:
    """A labelled statement has the path of the statement."""
    body = nodes.Block((A, nodes.Labelled(nodes.Label("t"), nodes.Yield(B))))
    assert [path_text(path) for path, _ in walk(body)] == ["root", "0", "1", "1", "1.0"]
    assert node_at(body, (1, 0)) == B


def test_span_is_not_identity() -> None:
    """Equal nodes at different places are equal."""
    assert nodes.Variable("a", span=Span(1, 2)) == A
