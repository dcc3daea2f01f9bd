// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// makefile has a part of each kind. MAKE is make itself.
const makefile = `
good:
	@echo all is well; mkdir -p out/tests; cp record.json out/tests/good.json
bad:
	@echo something broke; exit 3
without:
	@[ "$$NVTOPO_PARTS" = 1 ]; mkdir -p out/left-out; echo "no node is installed; apt-get install nodejs" >out/left-out/without
empty:
	@mkdir -p out/tests; echo '{"Action":"skip","Package":"p","Test":"TestA"}' >out/tests/empty.json
slow:
	@echo slow is done
`

const recordOfGood = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/first"}
{"Action":"fail","Package":"p","Test":"TestA/first"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/first"}
{"Action":"pass","Package":"p","Test":"TestA/first"}
{"Action":"pass","Package":"p","Test":"TestA"}
`

var seconds = regexp.MustCompile(` +\d+ +\d+ +`)

func TestRunParts(t *testing.T) {
	for name, tc := range map[string]struct {
		parts      []string
		want       []string // lines of the output, in this order among others; durations are "_"
		wantFailed bool
	}{
		"all pass, and tests and second tries are counted": {
			parts: []string{"good"},
			want:  []string{"all is well", "part result wall s CPU s tests second tries", "good ok _2 1"},
		},
		"those after a failed one are made": {
			parts: []string{"bad", "good"}, wantFailed: true,
			want: []string{"something broke", "all is well", "bad FAILED _- -", "good ok _2 1", "bad failed: out/logs/bad.log"},
		},
		"what was left out is said last": {
			parts: []string{"without", "good"},
			want:  []string{"without left out _- -", "good ok _2 1", "without was left out: no node is installed; apt-get install nodejs"},
		},
		"what goes on beside others is printed where its name stands again": {
			parts: []string{"slow&", "good", "slow", "bad"}, wantFailed: true,
			want: []string{"== slow, beside what follows", "all is well", "slow is done", "something broke", "slow, beside ok _- -"},
		},
		"what goes on beside others to the end is waited for": {
			parts: []string{"bad&", "good"}, wantFailed: true,
			want: []string{"all is well", "something broke", "bad, beside FAILED _- -"},
		},
		"a part of which no test ran fails": {parts: []string{"empty"}, wantFailed: true, want: []string{"empty NO TESTS _0 0"}},
		"a part that is no target fails":    {parts: []string{"nothing"}, wantFailed: true, want: []string{"nothing FAILED _- -"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			for file, text := range map[string]string{"Makefile": makefile, "record.json": recordOfGood} {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out strings.Builder
			failed, err := runParts(t.Context(), "out", "make", tc.parts, &out)
			if err != nil || failed != tc.wantFailed {
				t.Errorf("failed %v, error %v; want %v and none", failed, err, tc.wantFailed)
			}
			rest := out.String()
			for _, want := range tc.want {
				_, after, found := cut(rest, want)
				if !found {
					t.Fatalf("no line %q in\n%s\nof\n%s", want, rest, out.String())
				}
				rest = after
			}
		})
	}
}

// cut cuts a text behind a line. Runs of spaces are compared as one, and wall and CPU seconds as "_".
func cut(text, want string) (line, after string, found bool) {
	for line := range strings.Lines(text) {
		text = text[len(line):]
		line = strings.Join(strings.Fields(line), " ")
		line = seconds.ReplaceAllString(line, " _")
		if line == want {
			return line, text, true
		}
	}
	return "", "", false
}

func TestJudge(t *testing.T) {
	run := func(test, action, output string) string {
		return `{"Action":"run","Package":"github.com/nvtopo/nvtopo/p","Test":"` + test + `"}
{"Action":"output","Package":"github.com/nvtopo/nvtopo/p","Test":"` + test + `","Output":"` + output + `\n"}
{"Action":"` + action + `","Package":"github.com/nvtopo/nvtopo/p","Test":"` + test + `"}
`
	}
	for name, tc := range map[string]struct {
		record     string
		want       []string // lines
		wantFlakes map[string]string
		wantFailed bool
	}{
		"all passed at once": {record: run("TestA", "pass", "fine")},
		"a test that passed at its second try is listed with its first output": {
			record:     run("TestA", "fail", "too late") + run("TestA", "pass", "in time"),
			want:       []string{"p TestA passed at try 2 only; the output of the first is in flakes/part-p-TestA.txt"},
			wantFlakes: map[string]string{"part-p-TestA.txt": "too late\n"},
		},
		"a test that never passed is gotestsum's to fail": {record: run("TestA", "fail", "no") + run("TestA", "fail", "no")},
		"a violation is final": {
			record: run("TestA", "fail", "  soak_test.go:12: VIOLATION: GPU-1 has two owners") + run("TestA", "pass", ""),
			want: []string{
				"p TestA passed at try 2 only; the output of the first is in flakes/part-p-TestA.txt",
				"p TestA broke an invariant: a second try does not count",
			},
			wantFlakes: map[string]string{"part-p-TestA.txt": "  soak_test.go:12: VIOLATION: GPU-1 has two owners\n"}, wantFailed: true,
		},
		"a data race is final": {
			record: run("TestA", "fail", "WARNING: DATA RACE") + run("TestA", "pass", ""),
			want: []string{
				"p TestA passed at try 2 only; the output of the first is in flakes/part-p-TestA.txt",
				"p TestA has a data race: a second try does not count",
			},
			wantFlakes: map[string]string{"part-p-TestA.txt": "WARNING: DATA RACE\n"}, wantFailed: true,
		},
		"a panic is final": {
			record:     run("TestA", "fail", "panic: boom"),
			want:       []string{"p TestA panicked: a second try does not count"},
			wantFailed: true,
		},
		"a test that passed may have printed what it likes": {record: run("TestA", "pass", "panic: recovered, VIOLATION: expected")},
		"a test whose process died is final": {
			record: `{"Action":"run","Package":"github.com/nvtopo/nvtopo/p","Test":"TestA"}` + "\n" + run("TestA", "pass", ""),
			want: []string{
				"p TestA passed at try 2 only; the output of the first is in flakes/part-p-TestA.txt",
				"p TestA did not end, so that tests after it may not have run: a second try does not count",
			},
			wantFlakes: map[string]string{"part-p-TestA.txt": ""}, wantFailed: true,
		},
		"a package that failed without a test is final": {
			record:     run("TestA", "pass", "") + `{"Action":"fail","Package":"github.com/nvtopo/nvtopo/p"}` + "\n",
			want:       []string{"p failed, and none of its tests did: a second try does not count"},
			wantFailed: true,
		},
		"a package that failed with a test is not": {
			record: run("TestA", "fail", "no") + `{"Action":"fail","Package":"github.com/nvtopo/nvtopo/p"}` + "\n",
		},
		"lines that are not JSON are passed over": {record: "# compiler says\n" + run("TestA", "pass", "fine")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.WriteFile("part.json", []byte(tc.record), 0o600); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			failed, err := judgeFile("part.json", "flakes", &out)
			if err != nil || failed != tc.wantFailed {
				t.Errorf("failed %v, error %v; want %v and none", failed, err, tc.wantFailed)
			}
			if diff := cmp.Diff(strings.Join(tc.want, "\n"), strings.TrimSpace(out.String())); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			flakes := map[string]string{}
			files, _ := filepath.Glob("flakes/*")
			for _, f := range files {
				text, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				flakes[filepath.Base(f)] = string(text)
			}
			if diff := cmp.Diff(tc.wantFlakes, flakes, cmp.Transformer("empty", func(m map[string]string) int { return len(m) })); diff != "" {
				t.Errorf("flakes (-want +got):\n%s", diff)
			}
			for f, want := range tc.wantFlakes {
				if diff := cmp.Diff(want, flakes[f]); diff != "" {
					t.Errorf("%s (-want +got):\n%s", f, diff)
				}
			}
		})
	}
}

func TestFinalMarks(t *testing.T) {
	if final[0].mark != testkit.ViolationPrefix {
		t.Errorf("the mark of violations is %q, and tests write %q", final[0].mark, testkit.ViolationPrefix)
	}
}

func TestArguments(t *testing.T) {
	for name, args := range map[string][]string{
		"no verb": nil, "another verb": {"jump"}, "no part": {"run"}, "no record": {"judge"}, "an unknown flag": {"run", "-x", "p"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs strings.Builder
			if code := start(t.Context(), args, &out, &errs); code != 2 || errs.Len() == 0 {
				t.Errorf("exit code %d with message %q, want 2 and a message", code, errs.String())
			}
		})
	}
}
