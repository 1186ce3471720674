//! `squall report`: runs experiments of the literature and writes a page with plots.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use squall_report::{ALL, Done, Experiment, Lab, Missing, Progress, page, readme};

use crate::output::{Failure, line};
use crate::progress::bar;

#[derive(Args)]
pub(crate) struct ReportArgs {
    /// The experiments to run (see --list); all without a name.
    #[arg(value_name = "EXPERIMENT")]
    experiments: Vec<String>,
    /// List the experiments, one id and title per line.
    #[arg(long)]
    list: bool,
    /// Run few and short rounds.
    #[arg(long)]
    quick: bool,
    /// Print one JSON object per experiment, and no other text, to stdout.
    #[arg(long)]
    json: bool,
    /// Folder of the page and the plots. It is created.
    #[arg(long, value_name = "DIR", default_value = "squall-report")]
    out: PathBuf,
    /// Instead of experiments, draw the plot of Squall's README: FILE for light pages, and a file beside it
    /// for dark ones.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["experiments", "list", "quick", "json", "out"])]
    readme: Option<PathBuf>,
}

pub(crate) fn run(args: &ReportArgs) -> Result<(), Failure> {
    if let Some(file) = &args.readme {
        return draw_readme(file);
    }
    let chosen = chosen(&args.experiments)?;
    if args.list {
        return chosen.iter().try_for_each(|it| list(it, args.json));
    }
    let squall = own_binary()?;
    let bar = Bar::new();
    let mut told = Ok(());
    let done = squall_report::run(&chosen, &squall, args.quick, &mut |at| bar.show(&at), &mut |done| {
        let printed = bar.0.suspend(|| tell(done, args.json));
        if told.is_ok() {
            told = printed;
        }
    });
    bar.0.finish_and_clear();
    told?;
    page::write(&args.out, &done, args.quick).map_err(|error| Failure::new(error.to_string()))?;
    if !args.json {
        line(format_args!("The page is {}", args.out.join("index.html").display()))?;
    }
    Ok(())
}

fn own_binary() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::new(format!("cannot find the binary squall: {error}")))
}

/// Draws the plot of the README.
fn draw_readme(file: &Path) -> Result<(), Failure> {
    let bar = bar(0, "{msg}");
    let mut step = |step: &str| {
        bar.set_message(step.to_owned());
        bar.tick();
    };
    let plot = readme::count(&mut Lab::new(&own_binary()?, false, &mut step));
    bar.finish_and_clear();
    let plot = plot.map_err(|Missing(why)| Failure::new(why))?;
    let files = readme::write(&plot, file).map_err(|error| Failure::new(error.to_string()))?;
    files.iter().try_for_each(|file| line(file.display()))
}

fn chosen(names: &[String]) -> Result<Vec<&'static Experiment>, Failure> {
    if names.is_empty() {
        return Ok(ALL.to_vec());
    }
    let find = |name: &String| {
        squall_report::find(name).ok_or_else(|| {
            let all = ALL.iter().map(|it| it.id).collect::<Vec<_>>().join(", ");
            Failure::new(format!("there is no experiment {name:?}; choose from: {all}"))
        })
    };
    names.iter().map(find).collect()
}

fn list(it: &Experiment, json: bool) -> Result<(), Failure> {
    if json {
        return line(serde_json::json!({
            "experiment": it.id,
            "title": it.title,
            "question": it.question,
            "source": it.paper.source,
        }));
    }
    line(format_args!("{:<14} {:<60} {}", it.id, it.title, it.paper.source))
}

fn tell(done: &Done, json: bool) -> Result<(), Failure> {
    let (id, verdict) = (done.experiment.id, &done.verdict);
    if json {
        let row = serde_json::json!({ "experiment": id, "verdict": verdict.word(), "why": verdict.why() });
        return line(row);
    }
    let means = match done.found.means() {
        none if none.is_empty() => none,
        means => format!(" ({means})"),
    };
    line(format_args!("{id:<8} {:<8} {}{means}", verdict.word(), done.experiment.title))?;
    line(format_args!("                  {}", verdict.why()))?;
    if done.is_disturbed() {
        let percent = done.foreign * 100.0;
        eprintln!("squall: warning: other programs took {percent:.0} % of the processors during {id}");
    }
    Ok(())
}

/// A progress bar on a terminal; invisible elsewhere.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Bar {
        Bar(bar(0, "{pos}/{len} {msg}"))
    }

    fn show(&self, at: &Progress<'_>) {
        self.0.set_length(at.of as u64);
        self.0.set_position(at.number as u64);
        self.0.set_message(format!("{}: {}; {} left", at.experiment.id, at.step, left(at.left)));
        // Indicatif draws a message at its next tick only.
        self.0.tick();
    }
}

/// A time left, as people say it.
fn left(time: Duration) -> String {
    match time.as_secs() {
        0..=9 => "a few seconds".to_owned(),
        seconds @ 10..=99 => format!("about {} s", seconds / 10 * 10),
        seconds => format!("about {} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_told_roughly() {
        let told = [3, 59, 100, 601].map(|seconds| left(Duration::from_secs(seconds)));
        assert_eq!(told, ["a few seconds", "about 50 s", "about 2 min", "about 11 min"]);
    }
}
