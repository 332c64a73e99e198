import torch

from gmiflow.tasks.operands import FirstRows, Kept, number


def test_a_number_is_the_operand_that_torch_would_make():
    values = torch.tensor([0.3, 0.7, -2.0])
    assert torch.equal(values * number(0.1), values * 0.1)
    assert torch.equal(torch.tensor([1, 2], dtype=torch.int32) + number(1, torch.int32), torch.tensor([2, 3]).int())


def test_views_are_cut_once_per_set_of_arguments():
    cuts = []

    def halves(tensor, other):
        cuts.append(tensor)
        return tensor[:2], other[2:]

    kept = Kept(halves)
    first, second = torch.arange(4.0), torch.arange(4.0)
    views = kept(first, second)
    assert kept(first, second) is views
    # Equal arguments in other places are others.
    swapped = kept(second, first)
    swapped[0].fill_(9.0)
    assert second.tolist() == [9.0, 9.0, 2.0, 3.0] and first.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert len(cuts) == 2


def test_views_of_dropped_tensors_never_serve_new_ones():
    kept = Kept(lambda tensor: tensor[:1])
    for value in range(200):  # more than are kept; freed tensors leave their identity to later ones
        assert kept(torch.full((2,), float(value))).item() == value


def test_first_rows_are_views_cut_once_per_count():
    tensor = torch.zeros(200, 2)
    rows = FirstRows(tensor, tensor[:, 1])
    both, column = rows(3)
    both.fill_(1.0)
    assert tensor[:, 1].sum() == 3.0 and column.shape == (3,)
    assert rows(3)[0] is both
    assert [rows(count)[0].shape[0] for count in range(200)] == list(range(200))
