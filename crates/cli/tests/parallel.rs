//! Command lines of GNU parallel, word for word: the real program and `loxley run` print the same and end alike.
//!
//! Where `parallel` is not installed the comparison says so and does not run; `cargo xtask test` installs it where it
//! may.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

const LOXLEY: &str = env!("CARGO_BIN_EXE_loxley");

/// A line for bash in which `P` is the program, with options that make its output the same every time.
fn run(line: &str, program: &str, folder: &Path) -> Output {
    Command::new("bash")
        .arg("-c")
        .arg(line.replace("P ", &format!("{program} ")))
        .current_dir(folder)
        .env("HOME", folder)
        .env("SHELL", "/bin/bash")
        // Else theirs is the shell among its ancestors, which under nohup or in CI is another one.
        .env("PARALLEL_SHELL", "/bin/bash")
        .env("XDG_RUNTIME_DIR", folder)
        .env_remove("PARALLEL")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The same words, with the same meaning.
const SAME: &[&str] = &[
    "P echo ::: a b c",
    "P echo {} and {} ::: a b",
    "P echo {1}-{2} ::: a b ::: 1 2 3",
    "P echo {2} {1} ::: a b :::+ 1 2",
    "P --link echo {1}-{2} ::: a b c ::: 1 2",
    "P --xapply echo {1}{2} ::: a b ::: 1 2",
    "P echo {-1} {-2} ::: a ::: b",
    "seq 5 | P -N2 echo {1} {2}",
    "seq 5 | P -n2 echo",
    "printf 'a b\\nc\\nd\\n' | P -L2 echo {}",
    "seq 7 | P -m echo pre-{}-post",
    "seq 7 | P -X echo pre-{}-post",
    "seq 7 | P --xargs echo",
    "seq 7 | P -X -j1 'echo pre-{}-post | cat'",
    "P echo {.} {/} {//} {/.} ::: /a/b.c/d.e f.g h",
    "P --plus echo {..} {+.} {+..} {+/} {/..} ::: dir/x.tar.gz",
    "P echo {#} ::: a b c",
    "P -I ,, echo ,, {} ::: a b",
    "P --rpl '{o} s/a/b/' echo {o} {1o} ::: aa ba",
    "P --rpl '{x} s:/:_:g' echo {x} ::: a/b/c",
    "printf 'a\\n\\nb\\n' | P -r echo x{}",
    "P --trim lr 'echo x{}y' ::: ' a '",
    "seq 5 | P -E 3 echo",
    "seq 3 | P --skip-first-line echo",
    "printf 'f,g\\n1,2\\n3,4\\n' | P --colsep , --header : echo {f}={g} {1}",
    "P --header : echo {a}{b} ::: a 1 2 ::: b 3 4",
    "echo 'a1b22c' | P --colsep '[0-9]+' echo {1}-{2}-{3}",
    "printf 'a\\tb\\n' | P --colsep '\\t' echo {2}{1}",
    "printf 'a|b\\n' | P --colsep '\\|' echo {2}{1}",
    "P --tag echo ::: a b",
    "P --tagstring '{#}:{}' 'echo a; echo b' ::: 1 2",
    "P -v echo ::: 1 2",
    "P --dry-run echo {} ::: 'a b' '$x'",
    "P -q echo 'a  b' ::: c",
    "P --wd / pwd ::: 1",
    "P --workdir /tmp 'echo {}; pwd' ::: 1",
    "P 'exit {}' ::: 1 0 2",
    "P 'exit {}' ::: 0 0",
    "P -j1 --halt soon,fail=1 'echo {}; exit {}' ::: 0 3 0 4",
    "P -j1 --halt now,fail=1 'echo {}; exit {}' ::: 0 3 0 4",
    "P -j1 --halt 2 'exit {}' ::: 0 3 0",
    "P -j1 --halt now,success=1 'echo {}; exit {}' ::: 3 0 4",
    "P -j1 --halt never 'exit {}' ::: 0 1 1",
    "P -j1 --halt soon,fail=20% 'echo {}; exit {}' ::: 0 1 2 3 4 5 6 7 8 9",
    "seq 30000 | P --xargs echo | tr -d '\\n ' | cksum",
    "seq 10 | P -n 3 -m echo",
    "seq 10 | P -N3 -X echo a{}b",
    "seq 10 | P -n 4 --xargs echo",
    "P --results 'my_{}/' echo ::: a b >/dev/null; cat my_a/stdout my_b/seq",
    "printf 'echo a\\necho b\\n' | P",
    "f() { echo \"f $1\"; }; export -f f; P f ::: 1 2",
    "f() { echo \"f $1\"; }; export -f f; P --env f f ::: 1",
    "P 'x={}; echo ${x^^}' ::: abc",
    "P 'echo $(( {} * 2 ))' ::: 1 2 3",
    "P echo {} '>' {}.out ::: a b; cat a.out b.out",
    "P 'echo $PARALLEL_SEQ {}' ::: a b",
    "export PARALLEL=\"--tagstring 'a b'\"; P echo ::: 1",
    "P -a <(seq 3) echo",
    "P echo {1}{2} :::: <(seq 2) ::: a b",
    "P echo {1} {2} {3} :::: <(seq 6 7) <(seq 4 5) :::: <(seq 1 3)",
    "seq 6 7 | P -a - -a <(seq 4 5) echo {1} {2} {3} ::: 1 2 3",
    "P echo {1} - {2} ::::+ <(seq 3) <(seq 2 4)",
    "P --link -a <(seq 3) -a <(seq 3 -1 1) echo",
    "P -j0 -k 'sleep 0.{}; echo {}' ::: 3 1 2",
    "echo 'a ,  b,c ' | P --colsep , 'echo {1}{2}_{3}_'",
    "echo 'a ,  b' | P --trim n --colsep , 'echo {1}{2}'",
    "P --header : --results o echo {b} ::: b 1 ::: a 2 >/dev/null; find o -name stdout",
    "P --header : --results t.csv echo {b} ::: b 1 ::: a 2 >/dev/null; head -n1 t.csv",
    "seq 60 > f; P --pipe-part -a f --block 30 cat | cksum",
    "seq 60 > f; P -j1 --pipe-part -a f --block -1 'cat >/dev/null; echo x'",
    "printf 'a\\0b\\0' | P -0 echo",
    "printf 'a:b' | P -d : echo",
    "P -P 2 echo ::: a",
    "P --will-cite --group echo ::: a",
    "P --arg-sep ,, echo ,, a b",
    "P --results 'o/{1}-{2}.txt' echo {} ::: a ::: b >/dev/null; ls o; cat o/*",
    "P --results r echo {} ::: a b >/dev/null; cat r/1/a/stdout r/1/b/stdout",
    "P -j1 --results t.csv echo {} ::: a b >/dev/null; cut -d, -f1,2,10- t.csv",
    "P -j1 --joblog l 'exit {}' ::: 0 1; cut -f1,7,9 l; P --retry-failed --joblog l; cut -f1,7,9 l",
    "P --timeout 1 sleep ::: 0 20; echo $?",
    "P --nice 5 nice ::: 1 | head -c 1",
    "P -k 'sleep 0.{}; echo {}' ::: 3 1 2",
    "seq 3 | P echo ::: x",
    "seq 3 | P --pipe 'cat; echo {} x {#}'",
    "printf '' | P --pipe 'cat; echo x'",
    "seq 6 | P --pipe -N2 'cat; echo $PARALLEL_SEQ'",
    "seq 7 | P --pipe -n 3 'cat; echo -'",
    "seq 3 | P --pipe --header : -N1 'cat; echo -'",
    "seq 5 | P --pipe --skip-first-line 'cat; echo -'",
    "printf '>a\\nx\\n>b\\ny\\n' | P --pipe --recstart '>' -N1 'cat; echo -'",
    "printf 'a--b--c' | P --pipe --recend -- -N1 'cat; echo .'",
    "printf 'a--b--c' | P --pipe --recend -- -N1 --rrs 'cat; echo .'",
    "printf 'a\\tb\\tc\\t' | P --pipe --recend '\\t' -N2 'cat; echo .'",
    "printf '<x>1</x>\\n<x>2</x>\\n' | P --pipe --recstart '<x>' --recend '</x>\\n' -N1 'cat; echo .'",
    "seq 10 | P --pipe -L4 --block 5 'cat; echo -' 2>/dev/null",
    "seq 100 | P --pipe -L4 --block 50 'cat; echo -' 2>/dev/null",
    "printf 'a\\n\\n\\nb\\n' | P --pipe -r 'cat; echo -'",
    "seq 1000 | P --pipe --block 100 wc -c",
    "seq 60 | P --pipe --block 3 wc -c 2>/dev/null",
    "seq 200000 | P --pipe --block 100K md5sum | wc -l",
    "seq 300000 | P --pipe wc -c",
    "seq 6 | P --pipe --tag -N2 cat",
    "seq 6 | P --pipe --tagstring {#} -N2 cat",
    "seq 6 | P --pipe -v -N3 cat",
    "seq 6 | P --pipe -q -N3 sed 's/1/x y/'",
    "seq 6 | P --pipe --dry-run -N3 cat",
    "seq 6 | P --pipe -N2 'cat >/dev/null; exit 3'",
    "seq 6 | P --pipe -j1 --joblog l -N2 cat >/dev/null; cut -f1,5,6,7 l",
    "P --line-buffer 'echo a{}; printf b; sleep 0.{}; echo c' ::: 1 2",
    "P --lb --tag 'echo a; echo b' ::: 1 2",
    "P --lb 'printf x{}' ::: 1 2",
    "P --lb 'exit {}' ::: 1 0",
    "P 'printf \"%s\\n\" {}' ::: '$HOME' '`ls`' '*' 'a\"b' \"c'd\"",
];

#[test]
fn command_lines_of_gnu_parallel_do_the_same() {
    if Command::new("parallel").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no GNU parallel here, so nothing is compared with it");
        return;
    }
    let ours = format!("{LOXLEY} run --summary never -k -j2");
    let ours = &ours;
    let compare = |lines: &[&'static str]| {
        let mut differences = Vec::new();
        for line in lines {
            let [theirs, ours] = ["parallel --will-cite -k -j2", ours.as_str()].map(|program| {
                let folder = tempfile::tempdir().unwrap();
                run(line, program, folder.path())
            });
            let shown = |output: &Output| {
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                (output.status.code(), text)
            };
            if shown(&theirs) != shown(&ours) {
                let complaint = String::from_utf8_lossy(&ours.stderr).into_owned();
                differences.push((*line, shown(&theirs), shown(&ours), complaint));
            }
        }
        differences
    };
    // Most of the time is the start of the other program, and some lines sleep.
    let differences: Vec<_> = std::thread::scope(|scope| {
        let parts = SAME.chunks(SAME.len().div_ceil(4));
        let parts: Vec<_> = parts.map(|lines| scope.spawn(|| compare(lines))).collect();
        let parts = parts.into_iter();
        parts.flat_map(|part| part.join().unwrap()).collect()
    });
    assert!(differences.is_empty(), "{differences:#?}");
}

/// What `sem` does: `S` is the program.
const SEMAPHORES: &[&str] = &[
    "S --id t -j1 'sleep 0.3; echo a'; S --id t -j1 echo b; S --id t --wait; echo done",
    "S --id t --fg 'exit 3'; echo $?",
    "S --id t --fg echo 'a  b'",
    "echo x | S --id t cat; S --id t --wait",
    "S --id t --wait; echo $?",
    "S --id t -j2 'until test -e b; do sleep 0.05; done; echo a'; S --id t -j2 touch b; S --id t --wait",
    "S --id t 'until test -e go; do sleep 0.05; done'; S --id t --st -1 --fg echo no 2>/dev/null; echo $?; \
     S --id t --st 1 --fg echo yes 2>/dev/null; touch go; S --id t --wait",
];

#[test]
fn semaphores_of_gnu_parallel_do_the_same() {
    if Command::new("sem").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no GNU parallel here, so nothing is compared with its sem");
        return;
    }
    let ours = [format!("{LOXLEY} sem"), format!("{LOXLEY} run --semaphore")];
    for line in SEMAPHORES {
        let said = |program: &str| {
            let folder = tempfile::tempdir().unwrap();
            let output = run(&line.replace("S ", "P "), program, folder.path());
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let theirs = said("sem --will-cite");
        for program in &ours {
            assert_eq!(said(program), theirs, "{line}");
        }
    }
}

/// A line is there while its task still runs, and a task whose lines nobody reads ends.
#[test]
fn lines_come_while_tasks_run() {
    use std::io::{BufRead, BufReader};
    for order in [&[][..], &["--keep-order"]] {
        let mut child = Command::new(LOXLEY)
            .args(["run", "--line-buffer", "-j2"])
            .args(order)
            .arg("echo {}; read < fifo; echo end")
            .args([":::", "1", "2"])
            .current_dir({
                let folder = tempfile::tempdir().unwrap().keep();
                assert!(
                    Command::new("mkfifo")
                        .arg(folder.join("fifo"))
                        .status()
                        .unwrap()
                        .success()
                );
                folder
            })
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut first).unwrap();
        assert!(
            first == "1\n" || (order.is_empty() && first == "2\n"),
            "{first}"
        );
        terminate(child.id());
        assert!(!child.wait().unwrap().success());
    }
    let closed = "P --lb yes ::: a b | head -n1";
    let folder = tempfile::tempdir().unwrap();
    let output = run(closed, &format!("{LOXLEY} run"), folder.path());
    assert!([b"a\n", b"b\n"].contains(&&output.stdout[..].try_into().unwrap()));
}

fn terminate(process: u32) {
    let status = Command::new("kill").arg(process.to_string()).status();
    assert!(status.unwrap().success());
}

/// Where nobody looks at a terminal, `--bar` says how far it is in lines.
#[test]
fn a_bar_off_a_terminal_is_lines() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(
        "P --bar -j1 echo ::: a b c",
        &format!("{LOXLEY} run"),
        folder.path(),
    );
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("loxley: 3 of 3 done, 0 running"), "{words}");
    assert_eq!(output.stdout, b"a\nb\nc\n");
}

/// N more attempts after the first, as the help says.
#[test]
fn retries_are_attempts_after_the_first() {
    let folder = tempfile::tempdir().unwrap();
    for (retries, attempts) in [(0, 1), (2, 3)] {
        let line =
            format!("rm -f log; P --retries {retries} 'echo x >> log; false' ::: 1; wc -l < log");
        let output = run(&line, &format!("{LOXLEY} run"), folder.path());
        let counted = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert_eq!(counted, attempts.to_string());
    }
}

#[test]
fn options_that_are_not_there_are_known_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for (line, advice) in [
        ("P -S host echo ::: a", "loxley agent start"),
        ("P --transferfile x echo ::: a", "shared file system"),
        ("P --sqlmaster x echo ::: a", "--results FILE.csv"),
        ("P --tmux echo ::: a", "no terminal"),
        ("P -k --semaphore echo", "loxley sem"),
        (
            "P --rpl '{%(.*?)} s/$$1//' echo {%a} ::: a",
            "a replacement for each",
        ),
        ("P --pipe --block -1 cat", "-a"),
        ("P --pipe --regexp cat", "plain texts"),
        ("P --pipe --round-robin cat", "--pipe"),
        ("P --pipe", "which command"),
        ("P --pipe cat ::: a", "no items"),
        ("P --ll echo ::: a", "--line-buffer"),
        ("P -J mine echo ::: a", "PARALLEL"),
        ("P --process-slot-var=x echo ::: a", "LOXLEY_SLOT"),
        ("P --pipe --tee wc {} ::: -l", "wc {} < FILE"),
        ("P --filter '{1} < {2}' echo ::: a ::: b", "|| exit 0"),
        ("P --plus echo {choose_k} ::: a b ::: a b", "exit 0"),
        ("P 'echo {= s/a/b/ =}' ::: a", "--rpl"),
        ("P --plus 'echo {:2}' ::: a", "let the shell do it"),
        ("P --header 2 echo ::: a", "first line"),
        (
            "P --env NO_SUCH_VARIABLE echo ::: a",
            "export NO_SUCH_VARIABLE",
        ),
        ("P --workdir /no/such/place echo ::: a", "no directory"),
    ] {
        let output = run(line, &format!("{LOXLEY} run"), folder.path());
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(255), "{line}: {words}");
        assert!(words.contains(advice), "{line}: {words}");
        assert!(!words.contains("similar"), "{line}: {words}");
    }
}
