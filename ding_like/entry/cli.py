"""The command `ding`. Torch is imported only once a run starts, so that `ding --help` is quick."""

import json
import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from ding_like.config import to_plain
from ding_like.config.yaml_io import dump_yaml
from ding_like.entry.stop import Terminated, exit_message
from ding_like.utils.log import setup_console
from ding_like.utils.registry import REGISTRIES, UnknownNameError, suggest

INTERRUPTED = 130  # what a shell gives a program that Ctrl-C ended
TERMINATED = 143  # and one that SIGTERM ended
_PACKAGE = str(Path(__file__).parents[1])
_PURPOSE = (ValueError, TypeError, LookupError, ImportError, ArithmeticError, RuntimeError)


class _Count(click.ParamType):
    """A whole number that may be written 1e5."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if number < 0 or not number.is_integer():
            self.fail(f"{value!r} is not a whole number such as 100000 or 1e5", param, ctx)
        return int(number)


def _run_training(
    config: str, seeds: tuple[int | None, ...], sets: tuple[str, ...], options: dict[str, Any], mode: str = "serial"
) -> None:
    from ding_like.entry.resume import points_of
    from ding_like.entry.serial_entry import serial_pipeline

    names = {"env_step": "max_env_step", "train_iter": "max_train_iter"}
    options = {names.get(key, key): value for key, value in options.items()}
    if mode != "serial":
        options["mode"] = mode
    exp_name = options.pop("exp_name", None)
    if len(seeds) > 1 and exp_name is None:
        from ding_like.entry.build import full_config

        exp_name = full_config(config, sets=sets).exp_name
    for seed in seeds:
        folder = exp_name if len(seeds) == 1 else os.path.join(exp_name, f"seed_{seed}")
        if len(seeds) > 1 and options.get("resume") and not points_of(folder):
            click.echo(f"{folder}: there is no run to resume, so it starts", err=True)
            serial_pipeline(config, seed=seed, sets=sets, exp_name=folder, **{**options, "resume": False})
        else:
            serial_pipeline(config, seed=seed, sets=sets, exp_name=folder, **options)


def _run_eval(
    config: str | None, seeds: tuple[int | None, ...], sets: tuple[str, ...], options: dict[str, Any]
) -> None:
    from ding_like.entry.eval_entry import eval as evaluate
    from ding_like.entry.follow import follow
    from ding_like.worker.collector.evaluator import of_tasks

    run = options.pop("follow", None)
    known = {name: options.pop(name) for name in ("load_path", "video") if run is None and name in options}
    given = [f"--{name.replace('_', '-')}" for name in options]
    if given or len(seeds) > 1:
        mode = "-m eval" if run is None else "-m eval --follow"
        raise click.UsageError(f"{', '.join(given) or 'more than one seed'}: no meaning with {mode}")
    if run is not None:
        click.echo(json.dumps(follow(run, config, seed=seeds[0], sets=sets)))
        return
    result = evaluate(config, seed=seeds[0], sets=sets, **known)
    told = {key: result[key] for key in ("eval_value", "eval_value_raw", "n_episode")}
    click.echo(json.dumps({**told, **of_tasks(result)}))


def _run_collect(
    config: str | None, seeds: tuple[int | None, ...], sets: tuple[str, ...], options: dict[str, Any]
) -> None:
    from ding_like.entry.collect_entry import collect_dataset

    known = ("load_path", "env_step", "episodes", "out", "sample")
    given = [f"--{name.replace('_', '-')}" for name in options if name not in known]
    if given or len(seeds) > 1:
        raise click.UsageError(f"{', '.join(given) or 'more than one seed'}: no meaning with -m collect")
    if ("env_step" in options) == ("episodes" in options):
        raise click.UsageError("-m collect wants --env-step N or --episodes N, one of them")
    click.echo(json.dumps(collect_dataset(config, seed=seeds[0], sets=sets, **options)))


LONGEST = 4000  # characters of an error that are shown
_OF_EVAL = {"video": "records an evaluation", "follow": "evaluates the checkpoints of a run"}
_OF_COLLECT = {"episodes": "limits a dataset", "out": "names a dataset", "sample": "is how a dataset is collected"}
_RUN_OPTIONS = ("env_step", "train_iter", "exp_name", "load_path", "resume", "on_exists", *_OF_EVAL, *_OF_COLLECT)
MODES: dict[str, Callable[..., None]] = {
    "serial": _run_training,
    "serial_onpolicy": _run_training,
    "parallel": partial(_run_training, mode="parallel"),
    "async": partial(_run_training, mode="async"),
    "eval": _run_eval,
    "collect": _run_collect,
}


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        import ding_like

        click.echo(f"ding_like {ding_like.__version__}")
        ctx.exit()


def _print_names(ctx: click.Context, _: click.Parameter, kind: str | None) -> None:
    if kind is None:
        return
    if kind not in REGISTRIES:
        raise UnknownNameError(f"no registry is called {kind!r}.{suggest(kind, REGISTRIES)} {_KINDS}")
    for name in REGISTRIES[kind].query():
        click.echo(name)
    if kind == "env":
        click.echo("(and any Gymnasium id)", err=True)
    ctx.exit()


_KINDS = f"Registries: {', '.join(sorted(REGISTRIES))}."
_SET = click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Override a value: policy.learn.batch_size=64."
)


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-m",
    "--mode",
    type=click.Choice(list(MODES)),
    help="Train in one process (serial), with workers that collect (parallel), beside learning (async); evaluate; or "
    "collect a dataset.",
)
@click.option("-c", "--config", metavar="FILE", help="Config file (.py or .yaml).")
@click.option("-s", "--seed", "seeds", type=int, multiple=True, help="May repeat: <exp_name>/seed_N each.  [0]")
@click.option("--env-step", type=_Count(), help="Stop after this many env steps.")
@click.option("--train-iter", type=_Count(), help="Stop after this many gradient steps.")
@click.option("--exp-name", metavar="PATH", help="Folder of the run.")
@_SET
@click.option("--load-path", metavar="CKPT", help="Checkpoint to start from, to evaluate, or to collect with.")
@click.option("--resume", is_flag=True, default=None, help="Go on from the newest resume point of the run.")
@click.option(
    "--on-exists", type=click.Choice(["number", "error"]), help="If the folder exists: <exp_name>_1, or stop."
)
@click.option("--video", metavar="PATH", help="Record the first episode of -m eval, as .mp4 or .gif.")
@click.option("--follow", metavar="RUN", help="Evaluate the checkpoints of a run as they appear, with -m eval.")
@click.option("--episodes", type=_Count(), help="Collect so many episodes, with -m collect (or --env-step).")
@click.option("--out", metavar="FILE", help="The dataset of -m collect.  [<exp_name>/dataset.npz]")
@click.option("--sample", is_flag=True, default=None, help="Draw the actions of -m collect as in training.")
@click.option("-q", "--query", metavar="REGISTRY", callback=_print_names, is_eager=True, help=f"List names. {_KINDS}")
@click.option("-v", "--version", is_flag=True, callback=_print_version, is_eager=True, help="Show the version.")
@click.option("--debug", is_flag=True, help="Show the traceback of any error (also DING_DEBUG=1).")
@click.pass_context
def cli(
    ctx: click.Context,
    mode: str | None,
    config: str | None,
    seeds: tuple[int, ...],
    sets: tuple[str, ...],
    debug: bool,
    **options: Any,
) -> None:
    """Train and evaluate from one config file: ding -m serial -c FILE -s 0."""
    if ctx.invoked_subcommand is not None:
        if mode or config:
            raise click.UsageError(f"-m and -c do not go with the command {ctx.invoked_subcommand!r}")
        return
    if mode is None and config is None:
        click.echo(ctx.get_help())
        return
    if config is None and options["resume"] and options["exp_name"]:
        config = os.path.join(options["exp_name"], "total_config.yaml")
    alone = options["follow"] or (mode in ("eval", "collect") and options["load_path"])
    if mode is None or (config is None and not alone):
        missing = "-m MODE" if mode is None else "-c FILE"
        raise click.UsageError(f"{missing} is missing; a run needs both, as in: ding -m serial -c FILE -s 0")
    for own, told in (("eval", _OF_EVAL), ("collect", _OF_COLLECT)):
        for name, does in told.items():
            if options[name] is not None and mode != own:
                raise click.UsageError(f"--{name}: no meaning with -m {mode}; it {does} (-m {own})")
    run_options = {key: options[key] for key in _RUN_OPTIONS if options[key] is not None}
    _add_working_folder()
    MODES[mode](config, seeds or (None,), sets, run_options)


@cli.group("config")
def config_group() -> None:
    """Look at a config, check it, or write the reference of all keys."""


@config_group.command("show")
@click.argument("file")
@_SET
def config_show(file: str, sets: tuple[str, ...]) -> None:
    """Print FILE merged with every default, as YAML."""
    from ding_like.entry.build import full_config

    _add_working_folder()
    click.echo(dump_yaml(to_plain(full_config(file, sets=sets))), nl=False)


@config_group.command("check")
@click.argument("file")
@_SET
def config_check(file: str, sets: tuple[str, ...]) -> None:
    """Check FILE as far as no training is needed for it; exit code 0 if all is right.

    Keys, types and ranges, arguments of the network, names of classes, hooks and, for an env of Gymnasium's, its
    wrappers, whether the policy serves its spaces, and what making the policy tells.
    """
    from ding_like.entry.build import check_names, full_config

    _add_working_folder()
    check_names(full_config(file, sets=sets))
    click.echo(f"{file}: ok")


@config_group.command("reference")
@click.option("--write", "path", metavar="PATH", help="Write it to a file instead of printing it.")
def config_reference(path: str | None) -> None:
    """Print every key of every built-in class: default and meaning, as Markdown."""
    from ding_like.entry.reference import reference

    if path is None:
        click.echo(reference(), nl=False)
    else:
        Path(path).write_text(reference(), encoding="utf-8")


@cli.command("check-env")
@click.argument("env_id")
@click.option("--import-names", multiple=True, metavar="MODULE", help="Module that registers it; may repeat.")
@click.pass_context
def check_env_command(ctx: click.Context, env_id: str, import_names: tuple[str, ...]) -> None:
    """Step an env and tell what would break or spoil training: ding check-env CartPole-v1."""
    from ding_like.envs.check import check_env

    _add_working_folder()
    findings = check_env(env_id, import_names=import_names)
    for finding in findings:
        click.echo(str(finding))
    if any(finding.severity == "error" for finding in findings):
        ctx.exit(1)


@cli.command("export")
@click.argument("checkpoint")
@click.argument("path", metavar="OUT.onnx")
def export_command(checkpoint: str, path: str) -> None:
    """Write the policy of CHECKPOINT (or of a run's folder) as ONNX: ding export CKPT OUT.onnx."""
    from ding_like.entry.export import export_onnx
    from ding_like.policy import load_policy

    _add_working_folder()
    for kind, told in export_onnx(load_policy(checkpoint), path).items():
        for name, what in told.items():
            click.echo(f"{kind[:-1]} {name}: {what}")


@cli.command("plot")
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...")
@click.option("-o", "--out", default="plot.png", show_default=True, help="The picture: .png, .pdf or .svg.")
@click.option("--key", default="eval_value", show_default=True, help="What to draw, as metrics.jsonl names it.")
@click.option(
    "--section",
    metavar="NAME",
    default="eval",
    show_default=True,
    help="eval, learner, collect, data, rate or a hook's.",
)
@click.option("--x", type=click.Choice(["envstep", "train_iter", "wall_time_s"]), default="envstep", show_default=True)
@click.option("--aggregate", type=click.Choice(["mean", "iqm"]), default="mean", show_default=True, help="Over seeds.")
@click.option("--ci", type=float, default=0.95, show_default=True, help="Level of the bootstrap interval over seeds.")
@click.option("--label", "labels", multiple=True, help="Name of a curve; repeat it, one a folder.")
@click.option("--smooth", type=int, default=1, help="Each value as the mean of so many up to it.")
@click.option("--target", type=float, help="A dashed line at this height.")
@click.option("--title")
def plot_command(folders: tuple[str, ...], **options: Any) -> None:
    """Draw learning curves of run folders; one with seed_N folders in it is one curve with an interval over seeds."""
    from ding_like.entry.plot import plot

    click.echo(plot(folders, **options))


def _add_working_folder() -> None:
    """Make the modules of the folder the command is given in importable, as `python FILE` does."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def _is_deliberate(error: BaseException) -> bool:
    """Whether the error is a message to the user: of the system, a class of ours, or by a `raise` of ours."""
    if isinstance(error, OSError) or type(error).__module__.startswith("ding_like."):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or not isinstance(error, _PURPOSE) or not frames[-1].filename.startswith(_PACKAGE):
        return False
    return linecache.getline(frames[-1].filename, frames[-1].lineno or 0).lstrip().startswith("raise ")


def _users_frame(error: BaseException) -> traceback.FrameSummary | None:
    """The innermost frame in a file of the user's own, of the error or else of what caused it."""
    library = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    seen: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in seen:
        seen.append(link)
        for frame in reversed(traceback.extract_tb(link.__traceback__)):
            path = frame.filename
            if not path.startswith(("<", _PACKAGE + os.sep, *library)) and "-packages" + os.sep not in path:
                return frame
        link = link.__cause__
    return None


def _report(error: BaseException, debug: bool) -> None:
    if debug or not (isinstance(error, SystemExit) or _is_deliberate(error)):
        traceback.print_exception(error)
        return
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    text = exit_message(error) if isinstance(error, SystemExit) else text
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text)} characters)"
    click.echo(f"Error: {text or type(error).__name__}", err=True)
    for note in getattr(error, "__notes__", ()):
        click.echo(f"  {note}", err=True)
    frame = _users_frame(error)
    if frame is not None:
        where = f"{frame.filename}, line {frame.lineno}, in {frame.name}"
        click.echo(f"  in {where} (--debug shows the traceback)", err=True)


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 1 error, 2 wrong usage, 130 Ctrl-C, 143 SIGTERM."""
    arguments = sys.argv[1:] if argv is None else argv
    debug = "--debug" in arguments or os.environ.get("DING_DEBUG", "") not in ("", "0")
    setup_console()
    try:
        return cli.main(arguments, prog_name="ding", standalone_mode=False) or 0
    except click.exceptions.Abort as error:  # click's KeyboardInterrupt; the run has written its checkpoint
        terminated = isinstance(error.__cause__, Terminated)
        click.echo("Terminated." if terminated else "Interrupted.", err=True)
        return TERMINATED if terminated else INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (Exception, SystemExit) as error:  # the outermost frame: everything is shown, nothing hidden
        _report(error, debug)
        return 1


if __name__ == "__main__":
    sys.exit(main())
