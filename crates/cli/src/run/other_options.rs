//! Options of GNU parallel and xargs that `loxley run` does not have: each is known by name, with what to do instead.
//! Nobody is told of a *similar* option that is not similar.

/// What to say of an option that is not ours, if it is one of theirs.
pub(crate) fn advice(option: &str) -> Option<&'static str> {
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    let row = OTHERS.iter().find(|(names, _)| names.contains(&name));
    row.map(|(_, advice)| *advice)
}

const BY_SSH: &str = "there is no ssh here: `loxley server start`, an agent on each machine (`loxley agent start`), then \
                      `loxley submit`";
const FILES: &str =
    "files are not copied: agents see them on a shared file system, or the command fetches them";
const SQL: &str = "results are not written to a database: `--results FILE.csv`, `--json`, or a server, whose history \
                   `loxley journal export` prints";
const BLOCKS: &str = "`--pipe` gives each block of the input to a task of its own; a larger --block makes fewer of them";
const BY_VALUE: &str = "rows are not told apart by their values: `sort` the table and let awk write a file for each value, then \
                        take the files as items";
const AS_FILE: &str =
    "a block is the standard input of its task: /dev/stdin names it where a file is wanted";
const RENAMED: &str = "placeholders keep their names; -I renames {}, --rpl makes one of your own";
const TERMINAL: &str = "tasks have no terminal: use `loxley run -j1 --ungroup` for one that only prints, or a shell loop";
const COUNTS: &str = "`nproc` and `lscpu` say it; -j takes 50%, +1 and -1 of the cores";
const NEEDED_NOT: &str = "it is not needed here: leave it out";

const OTHERS: &[(&[&str], &str)] = &[
    (
        &[
            "-S",
            "--sshlogin",
            "--sshloginfile",
            "--slf",
            "--ssh",
            "--sshdelay",
            "--ssh-delay",
            "--controlmaster",
            "-M",
            "--nonall",
            "--onall",
            "--hostgroups",
            "--hgrp",
            "--filter-hosts",
            "--rsync-opts",
            "--use-sockets-instead-of-threads",
            "--use-cores-instead-of-threads",
            "--use-cpus-instead-of-cores",
        ],
        BY_SSH,
    ),
    (
        &[
            "--transfer",
            "--transferfile",
            "--tf",
            "--return",
            "--trc",
            "--basefile",
            "--bf",
            "--cleanup",
        ],
        FILES,
    ),
    (
        &[
            "--sqlmaster",
            "--sql-master",
            "--sqlworker",
            "--sql-worker",
            "--sqlandworker",
            "--sql-and-worker",
            "--sql",
        ],
        SQL,
    ),
    (
        &["--filter"],
        "choose the items before, with grep or awk, or in the command: `[ {1} -lt {2} ] || exit 0; …`",
    ),
    (&["--bin", "--shard", "--group-by", "--groupby"], BY_VALUE),
    (
        &["--tee"],
        "each task can read the whole input from a file: `loxley run 'wc {} < FILE' ::: -l -w -c`",
    ),
    (&["--cat", "--fifo"], AS_FILE),
    (
        &["-J", "--profile"],
        "options that you always want go into the variable PARALLEL, or into an alias of your shell",
    ),
    (
        &["--process-slot-var"],
        "{%} is the number of the slot; tasks find it as LOXLEY_SLOT and PARALLEL_JOBSLOT, too",
    ),
    (
        &["--minversion", "--version", "-V"],
        "`loxley --version` says which it is",
    ),
    (&["--embed"], "the program is one file: copy it"),
    (
        &["--max-line-length-allowed", "--show-limits"],
        "a command line has at most 131071 bytes; -s makes it shorter",
    ),
    (
        &[
            "--roundrobin",
            "--round-robin",
            "--round",
            "--blocktimeout",
            "--block-timeout",
            "--bt",
        ],
        BLOCKS,
    ),
    (
        &[
            "--basenamereplace",
            "--bnr",
            "--basenameextensionreplace",
            "--bner",
            "--dirnamereplace",
            "--dnr",
            "--extensionreplace",
            "--er",
            "--seqreplace",
            "--slotreplace",
            "--parens",
            "-U",
        ],
        RENAMED,
    ),
    (
        &[
            "--tty",
            "--open-tty",
            "-o",
            "--interactive",
            "-p",
            "--tmux",
            "--tmuxpane",
            "--fg",
        ],
        TERMINAL,
    ),
    (
        &[
            "--number-of-cpus",
            "--number-of-cores",
            "--number-of-sockets",
            "--number-of-threads",
        ],
        COUNTS,
    ),
    (
        &[
            "--gnu",
            "--silent",
            "--plain",
            "--bibtex",
            "--citation",
            "--record-env",
            "--session",
            "--no-keep-order",
            "--_parset",
            "--compress-program",
            "--decompress-program",
            "--compress",
        ],
        NEEDED_NOT,
    ),
    (
        &["--bg"],
        "tasks always run in the background of each other; put `&` behind `loxley run` for all of them",
    ),
    (
        &[
            "--semaphore",
            "--semaphorename",
            "--semaphore-name",
            "--id",
            "--semaphoretimeout",
            "--semaphore-timeout",
            "--st",
            "--wait",
        ],
        "`loxley sem` does it: --id, -j, --fg, --wait and --semaphore-timeout are there",
    ),
    (
        &[
            "--color",
            "--color-failed",
            "--cf",
            "--ctag",
            "--ctagstring",
        ],
        "output is not coloured: --tag marks its lines",
    ),
    (
        &["--latest-line", "--latestline", "--ll"],
        "--line-buffer shows lines as they come, --bar how far it is",
    ),
    (
        &["--files", "--output-as-files", "--outputasfiles"],
        "--results DIR keeps the output of each task in files of its own",
    ),
    (
        &["--template", "--tmpl"],
        "files with placeholders are not there: let the command fill them, with sed or envsubst",
    ),
    (
        &["--memsuspend"],
        "--memfree SIZE starts nothing while memory is short; nothing is suspended",
    ),
    (
        &["--noswap"],
        "--memfree SIZE starts a task only while so much memory is free",
    ),
    (
        &["--term-seq", "--termseq"],
        "a task gets TERM, and KILL two seconds later",
    ),
    (
        &["--shebang", "--hashbang", "--shebang-wrap"],
        "a job file does that: `loxley run FILE.yaml`",
    ),
    (&["--shell-completion"], "`loxley completions SHELL`"),
    (
        &["--shellquote", "--shell-quote"],
        "`loxley run --dry-run` shows how items are quoted",
    ),
    (
        &["--total-jobs", "--total"],
        "the number of tasks is counted as items come",
    ),
    (
        &["--unsafe"],
        "items arrive as exactly their own bytes: nothing can be unsafe",
    ),
    (
        &["-x", "--exit"],
        "a line that is too long is cut into several tasks, unless one item alone is",
    ),
    (
        &["-i", "--replace"],
        "-I TEXT says what stands for the item; without it, {} does",
    ),
    (
        &["-l", "--max-lines", "-e", "--eof"],
        "write -L N, or -E TEXT, with its value",
    ),
    (
        &["--delimiter-regexp", "--regexp"],
        "records begin with --recstart and end with --recend, which are plain texts",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_has_one_row() {
        let mut names: Vec<&str> = OTHERS
            .iter()
            .flat_map(|(names, _)| *names)
            .copied()
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(advice("--sshlogin=a").is_some());
        assert!(advice("--jobs").is_none());
    }
}
