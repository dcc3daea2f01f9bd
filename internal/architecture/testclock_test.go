// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// clockAllowed are the functions that may break the rules of clockRules, with the reason.
var clockAllowed = map[string]string{
	"test/e2e.attend":                "says when a pod is looked at again",
	"test/e2e.watch":                 "says when a pod is looked at again",
	"test/kubelet.TestRandomHistory": "random steps go on for a time, whatever they come to",

	"test/integration.TestGangFailover":   "a lower bound, which a slow machine only exceeds",
	"test/integration.testPatienceInVain": "a lower bound, which a slow machine only exceeds",
	"test/pools.TestKueueRetryQuota":      "a lower bound, which a slow machine only exceeds",

	"test/pools.TestQuotaWithoutPlace": "what may be evicted grows with the time that the machine took",
	"test/pools.TestGangTurns":         "what may be evicted grows with the time that the machine took",

	"test/integration.tried":   "part of a condition that is waited for with a limit of minutes",
	"test/pools.nextSecond":    "part of a condition that is waited for with a limit of minutes",
	"test/pools.settled":       "part of a condition that is waited for with a limit of minutes",
	"test/pools.waitCollector": "one try of a condition that is waited for with a limit of minutes",

	"test/pools.nothingOverdue": "limits of five minutes, after which it is a violation",
	"test/pools.neverBound":     "looks for a minute whether a thing happens that must not",

	"test/soak.besiege": "goes on for a time, whatever it comes to",
	"test/soak.do":      "an attack without an answer is given up and counted, which fails nothing",
	"test/soak.served":  "a limit of minutes; ten seconds count only as far as the machine had time",
	"test/soak.leave":   "excuses for minutes what is a violation otherwise",

	"test/soak.get":           "a process that does not answer is asked again, or is what the soak is about",
	"test/soak.unlike":        "excuses for minutes what is a violation otherwise",
	"test/soak.once":          "excuses for minutes what is a violation otherwise",
	"test/soak.share":         "excuses for minutes what is a violation otherwise",
	"test/soak.watchRepairer": "a Lease that has run out, by the server's rule",
	"test/soak.testify":       "collects evidence after a failure",
	"test/soak.beliefs":       "collects evidence after a failure",
}

// TestClockIndependence looks through the tests of all modules for those that may fail because of the
// clock.
func TestClockIndependence(t *testing.T) {
	root := filepath.Join("..", "..")
	tests, others := map[string][]string{}, map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch dir := filepath.Dir(rel); {
		case d.IsDir() && (slices.Contains([]string{"testdata", "node_modules", "bin", "out"}, d.Name()) ||
			strings.HasPrefix(d.Name(), ".") && rel != "."):
			return filepath.SkipDir
		case strings.HasSuffix(rel, "_test.go"):
			tests[dir] = append(tests[dir], path)
		case strings.HasSuffix(rel, ".go"):
			others[dir] = append(others[dir], path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(tests) < 50 {
		t.Errorf("tests in %d folders are looked through, which is not the repository", len(tests))
	}
	needed := map[string]bool{}
	for _, dir := range slices.Sorted(maps.Keys(tests)) {
		fset := token.NewFileSet()
		parse := func(paths []string) (files []*ast.File) {
			for _, path := range paths {
				file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, file)
			}
			return files
		}
		judgeClocks(fset, parse(tests[dir]), parse(others[dir]), func(fn *ast.FuncDecl, at ast.Node, what string) {
			where := filepath.ToSlash(dir) + "." + fn.Name.Name
			if _, allowed := clockAllowed[where]; allowed {
				needed[where] = true
				return
			}
			t.Errorf("%s: %s %s, on which no test may depend: see CONTRIBUTING.md, No test is red by the clock", fset.Position(at.Pos()), fn.Name.Name, what)
		})
	}
	for where := range clockAllowed {
		if !needed[where] {
			t.Errorf("%s needs no exception", where)
		}
	}
}

func TestClockRules(t *testing.T) {
	for name, tc := range map[string]struct {
		body string // of a test, and the code after it
		want []string
	}{
		"a time that is compared at once":          {"if time.Since(start) > time.Second { t.Error() }", []string{"Test compares a measured time"}},
		"a time in a variable":                     {"took := time.Since(start)\nif err != nil || took > 5*time.Second { t.Error(took) }", []string{"Test compares a measured time"}},
		"the slowest of some":                      {"var slowest time.Duration\nfor range 3 { slowest = max(slowest, time.Since(start)) }\nif slowest > d { t.Error() }", []string{"Test compares a measured time"}},
		"two times of day":                         {"begin := time.Now()\nrun()\nif d := time.Now().Sub(begin); d < lag { t.Error() }", []string{"Test compares a measured time"}},
		"work for some time":                       {"for start := time.Now(); time.Since(start) < d; { run() }", []string{"Test compares a measured time"}},
		"times that are kept":                      {"x.all = append(x.all, time.Since(start)) }\nfunc report(x *times) { at := func(i int) time.Duration { return x.all[i] }\nif at(1) > time.Second { panic(1) }", []string{"report compares a measured time"}},
		"a function that measures":                 {"if took() > time.Second { t.Error() } }\nfunc took() time.Duration { return time.Since(start)", []string{"Test compares a measured time"}},
		"CPU time":                                 {"syscall.Getrusage(syscall.RUSAGE_SELF, &used)", []string{"Test measures CPU time"}},
		"what the testing package measures":        {"if r := testing.Benchmark(f); r.NsPerOp() > 100 { t.Error() }", []string{"Test compares a measured time"}},
		"a deadline of its own":                    {"end := time.Now().Add(d)\nfor time.Now().Before(end) { run() }", []string{"Test compares the time of day"}},
		"an event after some time":                 {"start := time.Now()\nif e.At.Before(start.Add(lag)) { t.Error() }", []string{"Test compares the time of day"}},
		"a condition's limit":                      {`testkit.Eventually(t, 30*time.Second, "x", ask)`, []string{"Test testkit.Eventually gives up after 30s"}},
		"a constant limit":                         {`const patience = 20 * time.Second` + "\nctx, cancel := context.WithTimeout(t.Context(), patience)", []string{"Test context.WithTimeout gives up after 20s"}},
		"a limit that is the package's":            {"ctx, cancel := context.WithTimeout(t.Context(), patience/2) }\nconst patience = time.Minute\nfunc other() {", []string{"Test context.WithTimeout gives up after 30s"}},
		"a poll":                                   {"wait.PollUntilContextTimeout(ctx, time.Millisecond, 10*time.Second, true, ask)", []string{"Test wait.PollUntilContextTimeout gives up after 10s"}},
		"a connection's deadline":                  {"conn.SetDeadline(time.Now().Add(10 * time.Second))", []string{"Test conn.SetDeadline gives up after 10s"}},
		"a client's":                               {"c := &http.Client{Timeout: 5 * time.Second}", []string{"Test a client gives up after 5s"}},
		"a timer that fails the test":              {"select { case <-done:\ncase <-time.After(2 * time.Second): t.Fatal() }", []string{"Test fails after 2s"}},
		"a timer in a variable":                    {"over := time.After(time.Second)\nselect { case <-done:\ncase <-over: t.Error() }", []string{"Test fails after 1s"}},
		"a helper in a bubble and elsewhere":       {"synctest.Test(t, func(t *testing.T) { late(t) })\nlate(t) }\nfunc late(t *testing.T) { if time.Since(start) > d { t.Error() }", []string{"late compares a measured time"}},
		"beside a bubble":                          {"start := time.Now()\nsynctest.Test(t, func(t *testing.T) { time.Sleep(d) })\nif time.Since(start) > d { t.Error() }", []string{"Test compares a measured time"}},
		"allowed: in a bubble":                     {"synctest.Test(t, func(t *testing.T) { start := time.Now(); if time.Since(start) != d { t.Error() } })", nil},
		"allowed: a helper of bubbles":             {"synctest.Test(t, func(t *testing.T) { outer(t) }) }\nfunc outer(t *testing.T) { inner(t) }\nfunc inner(t *testing.T) { if time.Since(start) != d { t.Error() }", nil},
		"allowed: a clock of the test's own":       {"if clk.Since(start) > time.Second || c.clock.now.Sub(last) > time.Second { t.Error() }", nil},
		"allowed: numbers":                         {"if new(big.Rat).Sub(x, y).Sign() > 0 { t.Error() }", nil},
		"allowed: it is logged":                    {`start := time.Now()` + "\n" + `t.Log(time.Since(start))`, nil},
		"allowed: a limit of minutes":              {"ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)", nil},
		"allowed: a time that is over":             {"ctx, cancel := context.WithTimeout(t.Context(), 0)", nil},
		"allowed: a limit that nobody knows":       {"ctx, cancel := context.WithTimeout(t.Context(), tc.limit)", nil},
		"allowed: a chance for what must not come": {"select { case <-done: t.Error()\ncase <-time.After(time.Second): }", nil},
		"allowed: the order of two events":         {"before := time.Now()\nrun()\nif changed().Before(before) { t.Error() }", nil},
		"allowed: a benchmark's figure":            {"} \nfunc cpu(b *testing.B) { syscall.Getrusage(syscall.RUSAGE_SELF, &used)", nil},
	} {
		t.Run(name, func(t *testing.T) {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, "x_test.go", "package x\nfunc Test(t *testing.T) {\n"+tc.body+"\n}\n", parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			judgeClocks(fset, []*ast.File{file}, nil, func(fn *ast.FuncDecl, _ ast.Node, what string) {
				got = append(got, fmt.Sprint(fn.Name.Name, " ", what))
			})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("found (-want,+got):\n%s", diff)
			}
		})
	}
}
