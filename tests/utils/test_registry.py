"""Registries: names become classes, and every mistake is named."""

import sys

import pytest

from ding_like.utils import REGISTRIES, Registry, UnknownNameError, import_modules, suggest


@pytest.fixture
def registry():
    return Registry("toy", {"builtin": "ding_like.policy.dqn"})


def make(name, module="m"):
    return type(name, (), {"__module__": module, "__qualname__": name})


def test_decorator_and_call_register_under_name_or_own_name(registry):
    @registry.register("first")
    class A:
        pass

    @registry.register()
    class B:
        pass

    C = make("C")
    assert registry.register("third", C) is C
    assert registry.get("first") is A and registry.get("B") is B and registry.get("third") is C
    assert registry.query() == ["B", "builtin", "first", "third"] and "third" in registry and "x" not in registry


def test_a_name_is_taken_once(registry):
    registry.register("a", make("A"))
    with pytest.raises(ValueError, match=r"toy 'a' is registered already, by m\.A"):
        registry.register("a", make("B"))
    other = make("B")
    registry.register("a", other, force_overwrite=True)
    assert registry.get("a") is other


def test_the_same_class_from_a_reloaded_module_takes_its_name_again(registry):
    registry.register("a", make("A"))
    again = make("A")
    registry.register("a", again)
    assert registry.get("a") is again


def test_unknown_name_suggests_and_lists(registry):
    registry.register("eps_greedy", make("A"))
    with pytest.raises(UnknownNameError) as caught:
        registry.get("eps_gredy")
    text = str(caught.value)
    assert text.startswith("no toy is called 'eps_gredy'. Did you mean 'eps_greedy'?")
    assert "Known: builtin, eps_greedy." in text and "import_names" in text
    assert isinstance(caught.value, KeyError)


def test_import_names_are_imported_first(registry, in_tmp, monkeypatch):
    monkeypatch.setattr(sys, "my_toys", registry, raising=False)
    (in_tmp / "toy_module_a.py").write_text("import sys\nsys.my_toys.register('mine', type('Mine', (), {}))\n")
    assert registry.get("mine", ["toy_module_a"]).__name__ == "Mine"


def test_missing_module_is_named_and_one_it_needs_is_not_mistaken_for_it(in_tmp):
    with pytest.raises(ImportError, match=r"import_names entry 'no_such.module' is not a module: no 'no_such'"):
        import_modules(["no_such.module"])
    (in_tmp / "toy_module_b.py").write_text("import no_such_dependency\n")
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'no_such_dependency'"):
        import_modules(["toy_module_b"])
    with pytest.raises(TypeError, match=r"import_names is the string 'a.b'; wanted a list"):
        import_modules("a.b")


def test_build_passes_arguments_and_the_constructors_own_errors(registry):
    registry.register("pair", lambda a, b: (a, b))
    assert registry.build("pair", 1, b=2) == (1, 2)
    with pytest.raises(TypeError, match="missing 1 required"):
        registry.build("pair", 1)


def test_suggestions_are_near_or_absent():
    assert suggest("batch_sise", ["batch_size", "lr"]) == " Did you mean 'batch_size'?"
    assert suggest("zzz", ["batch_size"]) == ""


@pytest.mark.parametrize("kind", sorted(REGISTRIES))
def test_every_built_in_name_loads(kind):
    for name in REGISTRIES[kind]._builtin:
        assert REGISTRIES[kind].get(name) is not None


def test_a_constructor_may_take_an_argument_called_name(registry):
    registry.register("named", lambda name: name)
    assert registry.build("named", name="x") == "x"


def test_the_article_of_a_kind_is_right():
    with pytest.raises(UnknownNameError, match=r"An env_manager of your own needs its module in import_names"):
        Registry("env_manager").get("x")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("dizoo.classic_control.cartpole.envs.cartpole_env", "need no import here, so remove the entry"),
        ("ding.policy.dqn", "remove the entry, or write 'ding_like.policy.dqn'"),
        ("my_no_such", "Put its folder beside the config file"),
    ],
)
def test_what_to_do_about_a_missing_module_depends_on_whose_it_is(name, says):
    with pytest.raises(ImportError, match=says):
        import_modules([name])
