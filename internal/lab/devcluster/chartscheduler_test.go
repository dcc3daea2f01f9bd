// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	clocktesting "k8s.io/utils/clock/testing"
)

// fakeScheduler is one that was started with a configuration, or none any more.
type fakeScheduler struct {
	alive     bool
	noRestart bool
}

func (f *fakeScheduler) Alive() bool                { return f.alive }
func (f *fakeScheduler) Stop(context.Context) error { f.alive = false; return nil }
func (f *fakeScheduler) LastWords() string          { return "leaderelection lost" }
func (f *fakeScheduler) Restart(context.Context) error {
	if f.noRestart {
		return errors.New("it ended")
	}
	f.alive = true
	return nil
}

// TestChartScheduler: one line says that the scheduler of the chart does not run, or not with its new
// configuration, and why; and one that it does again.
func TestChartScheduler(t *testing.T) {
	const (
		who   = "the scheduler of Deployment nvtopo-system/nvtopo-scheduler "
		again = who + "runs again, with the Deployment's configuration"
		none  = who + "does not run: the Deployment has 0 replicas"
		gone  = who + "does not run: the Deployment is gone"
	)
	clk := clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
	var said []string
	var now *fakeScheduler // the one that was started last
	var started []string
	s := &chartScheduler{
		clock: clk,
		say:   func(text string) { said = append(said, text) },
		check: func(_ context.Context, c schedulerConfig) error {
			if strings.HasPrefix(c.text, "wrong") {
				return errors.New(c.file + ": profiles[0].pluginConfig[0].args.x: there is no such field")
			}
			return nil
		},
		start: func(_ context.Context, c schedulerConfig) (schedulerProcess, error) {
			if c.text == "broken" {
				return nil, errors.New("wait for the scheduler: it ended: exit status 1: no right to list pods")
			}
			now = &fakeScheduler{alive: true}
			started = append(started, c.text)
			return now, nil
		},
	}
	for _, step := range []struct {
		name, config string
		do           func()
		want         []string
		wantStarted  []string
		wantAlive    bool
		scaledDown   bool
	}{
		{name: "nothing is installed"},
		{name: "a wrong configuration is installed", config: "wrong", want: []string{who + "does not run: f.yaml: profiles[0].pluginConfig[0].args.x: there is no such field"}},
		{name: "it stays wrong", config: "wrong"},
		{name: "it is corrected", config: "a", want: []string{again}, wantStarted: []string{"a"}, wantAlive: true},
		{name: "it stays right", config: "a", wantAlive: true},
		{name: "another one", config: "b", wantStarted: []string{"b"}, wantAlive: true},
		{name: "a wrong one comes", config: "wrong", want: []string{who + "goes on with its former configuration: f.yaml: profiles[0].pluginConfig[0].args.x: there is no such field"}, wantAlive: true},
		{name: "another wrong one comes", config: "wrong too", want: []string{who + "goes on with its former configuration: f.yaml: profiles[0].pluginConfig[0].args.x: there is no such field"}, wantAlive: true},
		{name: "the former one ends", config: "wrong too", do: func() { now.alive = false }, want: []string{who + "does not run: it ended: leaderelection lost"}},
		{
			name: "and comes back", config: "wrong too", do: func() { clk.SetTime(clk.Now().Add(restartDelay)) },
			want: []string{who + "runs again, with its former configuration"}, wantAlive: true,
		},
		{name: "it is rolled back", config: "b", want: []string{again}, wantAlive: true},
		{name: "it ends", config: "b", do: func() { now.alive = false }, want: []string{who + "does not run: it ended: leaderelection lost"}},
		{name: "too early", config: "b", do: func() { clk.SetTime(clk.Now().Add(restartDelay / 2)) }},
		{name: "it does not come back", config: "b", do: func() { now.noRestart = true; clk.SetTime(clk.Now().Add(restartDelay)) }},
		{name: "it does", config: "b", do: func() { now.noRestart = false; clk.SetTime(clk.Now().Add(restartDelay)) }, want: []string{again}, wantAlive: true},
		{name: "one that does not start", config: "broken", want: []string{who + "does not run: wait for the scheduler: it ended: exit status 1: no right to list pods"}},
		{name: "it is not tried again", config: "broken", do: func() { clk.SetTime(clk.Now().Add(time.Hour)) }},
		{name: "it is uninstalled", do: func() { now.alive = false }, want: []string{gone}},
		{name: "it is installed again", config: "b", want: []string{again}, wantStarted: []string{"b"}, wantAlive: true},
		{name: "it is scaled to none", config: "b", scaledDown: true, want: []string{none}},
		{name: "it stays so", config: "b", scaledDown: true},
		{name: "another configuration meanwhile", config: "a", scaledDown: true},
		{name: "it is scaled up", config: "a", want: []string{again}, wantStarted: []string{"a"}, wantAlive: true},
		{name: "a wrong one comes again", config: "wrong", want: []string{who + "goes on with its former configuration: f.yaml: profiles[0].pluginConfig[0].args.x: there is no such field"}, wantAlive: true},
		{name: "its former configuration goes too when it is scaled to none", config: "wrong", scaledDown: true, want: []string{none}},
		{name: "a wrong one does not start when it is scaled up", config: "wrong", want: []string{who + "does not run: f.yaml: profiles[0].pluginConfig[0].args.x: there is no such field"}},
		{name: "it is scaled to none while it does not run", config: "wrong", scaledDown: true, want: []string{none}},
		{name: "it is uninstalled while it has no replicas", do: func() { now.alive = false }, want: []string{gone}},
	} {
		said, started = nil, nil
		if step.do != nil {
			step.do()
		}
		config := schedulerConfig{text: step.config}
		if step.config != "" {
			config.file = "f.yaml"
		}
		config.scaledDown = step.scaledDown
		if err := s.follow(t.Context(), config); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff([][]string{step.want, step.wantStarted}, [][]string{said, started}); diff != "" {
			t.Errorf("%s: said and started (-want,+got):\n%s", step.name, diff)
		}
		if s.alive() != step.wantAlive {
			t.Errorf("%s: it runs: %t, want %t", step.name, s.alive(), step.wantAlive)
		}
	}
}

// TestChartConfigCheck: the scheduler's program checks the configuration as the init container has it, and
// what it says last is said, with the name of the file in the pod.
func TestChartConfigCheck(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "nvtopo-scheduler")
	script := `#!/bin/sh
[ "$1 $3 $4" = '--check-config --check-config-name=/etc/nvtopo/c.yaml -v=5' ] || exit 0
echo a log line
grep -q profilez "${2#--config=}" && echo "nvtopo-scheduler: ${3#--check-config-name=}: profilez: there is no such field" >&2
! grep -q profilez "${2#--config=}"
`
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	s := newChartScheduler(&Cluster{dir: dir}, &ChartOptions{Scheduler: program, SchedulerArgs: []string{"-v=5"}})
	for text, want := range map[string]string{"profilez: []\n": "/etc/nvtopo/c.yaml: profilez: there is no such field", "profiles: []\n": "<nil>"} {
		err := s.check(t.Context(), schedulerConfig{file: "/etc/nvtopo/c.yaml", text: text})
		if got := "<nil>"; err != nil && err.Error() != want || err == nil && want != got {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
