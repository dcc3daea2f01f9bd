// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// restartDelay is the time before an ended scheduler is started again: kubelet's first back-off.
const restartDelay = 10 * time.Second

// schedulerConfig is the configuration that the pods of the scheduler's Deployment read.
type schedulerConfig struct {
	file, text string
	scaledDown bool // the Deployment has no replicas
}

// runs reports whether the Deployment exists and has a pod that reads the configuration.
func (c schedulerConfig) runs() bool { return c.text != "" && !c.scaledDown }

// schedulerProcess is a running scheduler.
type schedulerProcess interface {
	Alive() bool
	Stop(ctx context.Context) error
	Restart(ctx context.Context) error
	// LastWords returns its last line of output.
	LastWords() string
}

// chartScheduler runs the scheduler of the chart's Deployment beside the cluster as its pods would, and
// reports when it stops and when it runs again.
type chartScheduler struct {
	check func(ctx context.Context, c schedulerConfig) error // as the init container of the pods does
	start func(ctx context.Context, c schedulerConfig) (schedulerProcess, error)
	say   func(string)
	clock clock.PassiveClock

	seen    schedulerConfig  // the Deployment's that runs, was refused or is scaled down; empty when there is none
	running schedulerProcess // nil: none was started
	ran     schedulerConfig  // of running
	refused bool             // it was said that the Deployment's is not run
	ended   bool             // it was said that the running one has ended
	gone    bool             // it was said that the Deployment is gone
	tried   time.Time        // when it was last tried to start it again, or seen to have ended
}

// follow runs the scheduler with a configuration, or ends it if the Deployment does not exist or has no
// replicas. A rejected or failed configuration is not retried until it changes.
func (s *chartScheduler) follow(ctx context.Context, want schedulerConfig) error {
	switch {
	case want != s.seen:
		return s.change(ctx, want)
	case s.running != nil && !s.running.Alive():
		s.revive(ctx)
	}
	return nil
}

// change starts the scheduler with another configuration, or ends it. While the configuration is rejected
// the earlier one continues, as in the pods.
func (s *chartScheduler) change(ctx context.Context, want schedulerConfig) error {
	if want.runs() {
		if err := s.check(ctx, want); err != nil {
			s.fault(ctx, want, err)
			return nil
		}
		if s.alive() && s.ran == want {
			s.runs(want)
			return nil
		}
	}
	if s.running != nil {
		if err := s.running.Stop(ctx); err != nil {
			return fmt.Errorf("stop the scheduler: %w", err)
		}
		s.running, s.ended = nil, false
	}
	if !want.runs() {
		switch {
		case want.scaledDown && !s.seen.scaledDown:
			s.say(deploymentText + "does not run: the Deployment has 0 replicas")
		case !want.scaledDown:
			s.say(deploymentText + "does not run: the Deployment is gone")
			s.gone = true
		}
		s.seen, s.refused = want, false
		return nil
	}
	p, err := s.start(ctx, want)
	if err != nil {
		s.fault(ctx, want, err)
		return nil
	}
	s.running, s.ran = p, want
	s.runs(want)
	return nil
}

// revive restarts a scheduler that has ended by itself, with the configuration that it had.
func (s *chartScheduler) revive(ctx context.Context) {
	now := s.clock.Now()
	if !s.ended {
		s.ended, s.tried = true, now
		if ctx.Err() == nil {
			s.say(deploymentText + "does not run: it ended: " + s.running.LastWords())
		}
	}
	if now.Sub(s.tried) < restartDelay {
		return
	}
	s.tried = now
	if s.running.Restart(ctx) != nil {
		return
	}
	s.ended = false
	if s.refused {
		s.say(deploymentText + "runs again, with its former configuration")
		return
	}
	s.say(deploymentText + "runs again, with the Deployment's configuration")
}

func (s *chartScheduler) alive() bool { return s.running != nil && s.running.Alive() }

// deploymentText begins the messages about the scheduler.
const deploymentText = "the scheduler of Deployment " + systemNamespace + "/" + schedulerDeployment + " "

// fault reports that a configuration is not run.
func (s *chartScheduler) fault(ctx context.Context, want schedulerConfig, err error) {
	if ctx.Err() != nil {
		return // it is to end
	}
	s.seen, s.refused = want, true
	if s.alive() {
		s.say(fmt.Sprintf(deploymentText+"goes on with its former configuration: %v", err))
		return
	}
	s.say(fmt.Sprintf(deploymentText+"does not run: %v", err))
}

// runs reports that a configuration is run.
func (s *chartScheduler) runs(want schedulerConfig) {
	if s.refused || s.ended || s.seen.scaledDown || s.gone {
		s.say(deploymentText + "runs again, with the Deployment's configuration")
	}
	s.seen, s.refused, s.ended, s.gone = want, false, false, false
}

// CheckSchedulerConfig runs a scheduler program's check of a configuration file, with further flags. The
// error is the program's last line of output, which names the field at fault.
func CheckSchedulerConfig(ctx context.Context, binary, file string, args ...string) error {
	out, err := exec.CommandContext(ctx, binary, append([]string{"--check-config", "--config=" + file}, args...)...).CombinedOutput()
	if err == nil {
		return nil
	}
	if _, ended := errors.AsType[*exec.ExitError](err); !ended {
		return fmt.Errorf("check the scheduler's configuration: %w", err)
	}
	return errors.New(lastLine(string(out)))
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// newChartScheduler follows the Deployment of a chart in a cluster.
func newChartScheduler(c *Cluster, chart *ChartOptions) *chartScheduler {
	return &chartScheduler{
		clock: clock.RealClock{},
		say: func(text string) {
			if chart.Progress != nil {
				fmt.Fprintln(chart.Progress, text)
			}
			fmt.Fprintln(c.log, text)
		},
		check: func(ctx context.Context, config schedulerConfig) error {
			file := filepath.Join(c.dir, "check-config.yaml")
			if err := os.WriteFile(file, []byte(config.text), 0o600); err != nil {
				return fmt.Errorf("write the scheduler's configuration: %w", err)
			}
			err := CheckSchedulerConfig(ctx, chart.Scheduler, file, append([]string{"--check-config-name=" + config.file}, chart.SchedulerArgs...)...)
			if err != nil {
				return errors.New(strings.TrimPrefix(err.Error(), filepath.Base(chart.Scheduler)+": "))
			}
			return nil
		},
		start: func(ctx context.Context, config schedulerConfig) (schedulerProcess, error) {
			said := &Tail{File: c.log}
			s, err := c.StartScheduler(ctx, SchedulerOptions{
				Binary: chart.Scheduler, Config: []byte(config.text), Args: chart.SchedulerArgs, ServiceAccount: chart.SchedulerAccount, Log: said,
			})
			if err != nil {
				return nil, fmt.Errorf("%w: %s", err, lastLine(said.String()))
			}
			return talking{s, said}, nil
		},
	}
}

// talking is a scheduler whose last line of output is known.
type talking struct {
	*Scheduler

	said *Tail
}

func (t talking) LastWords() string { return lastLine(t.said.String()) }
