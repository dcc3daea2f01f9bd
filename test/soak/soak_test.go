// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

const (
	defaultSeed     = 1
	defaultDuration = 90 * time.Second
	defaultNodes    = 14
	// patience bounds every wait of the soak: changes of leaders, doubts decided, backoffs, graphs published
	// again, watches restarted, an API server that takes two minutes to end. It is less than the five
	// minutes after which kube-scheduler retries every pod, so that a pod without a wake-up is found.
	patience = 4 * time.Minute
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// setting reads a number or a duration from the environment.
func setting[T any](t *testing.T, name string, otherwise T, parse func(string) (T, error)) T {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	v, err := parse(s)
	if err != nil {
		t.Fatalf("%s=%s: %v", name, s, err)
	}
	return v
}

// TestSoak plays the plan of a seed for a while. NVTOPO_SOAK_SEED and NVTOPO_SOAK_DURATION set both; with
// NVTOPO_SOAK_HOSTILE=0 there is no hostile tenant.
func TestSoak(t *testing.T) {
	seed := setting(t, "NVTOPO_SOAK_SEED", defaultSeed, func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 56) })
	length := setting(t, "NVTOPO_SOAK_DURATION", defaultDuration, time.ParseDuration)
	binary, log := testkit.OwnProgram(t, "nvtopo-scheduler"), testkit.Log()
	w := newTestEnv(t, seed, defaultNodes, log)
	if setting(t, "NVTOPO_SOAK_HOSTILE", true, strconv.ParseBool) {
		w.admitTenant(t)
	}
	p := newPlan(seed, length, len(w.boxes), w.gpus())
	w.startSchedulers(t, binary, log)
	t.Logf("seed %d, %v, plan %s: %d phases on %d nodes with %d GPUs", seed, length, p.hash(), len(p.Phases), len(w.boxes), w.gpus())

	leaks := w.play(t, p)
	t.Log("\n" + w.report(p, time.Since(w.start), leaks))
	w.verdict(t, fmt.Sprintf("\nto play it again: make soak SEED=%d DURATION=%s\nwhat happened last:\n%s", seed, length, w.history()))
}

// lives is how often a phase that is to leave processes alive is repeated until one lived: on an
// overloaded machine, a leader may fail to renew its Lease.
const lives = 3

// play plays all phases and returns the schedulers' resources at the end of each.
func (e *testEnv) play(t *testing.T, p *plan) (leaks []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	checker := e.run(newChecker(t, e).run)
	defer checker.stop()
	controller := e.run(e.tendGangs)
	defer controller.stop()
	var baseline map[int]*reading
	for i := range p.Phases {
		ph := &p.Phases[i]
		if ph.Deadly {
			baseline = nil
		}
		for life := 1; ; life++ {
			now, compared := e.stretch(ctx, t, ph, baseline)
			for _, pid := range slices.Sorted(maps.Keys(now)) {
				leaks = append(leaks, fmt.Sprintf("after phase %d: %s", i, now[pid]))
			}
			baseline = now
			if e.ctx.Err() != nil || ph.Deadly || compared > 0 {
				break
			}
			if life == lives {
				// A leader that could not renew its Lease in time is no fault; a crash is one of its own, see
				// supervise.
				e.count("phases with nothing to compare: no scheduler process lived through", 1)
				e.mark("phase %d: in none of %d plays did a scheduler process live from the calm before to the calm after it", i, lives)
				break
			}
			e.count("phases played again since no process lived through", 1)
		}
		if e.ctx.Err() != nil {
			return leaks
		}
	}
	return leaks
}

// stretch is churn, calm, and the end of all pods. It returns the resources that each scheduler process
// holds afterwards and how many of them could be compared with the baseline.
func (e *testEnv) stretch(ctx context.Context, t *testing.T, ph *phase, baseline map[int]*reading) (now map[int]*reading, compared int) {
	t.Helper()
	runs, tries := e.tally(checkerRuns), e.tally(checkerTries)
	e.past.forget()
	e.churn(ctx, ph)
	e.expel(ctx)
	// A checker that cannot read finds nothing. In a deadly phase the API server is down, for as long as the
	// machine takes to start it.
	if n, all := e.tally(checkerRuns)-runs, e.tally(checkerTries)-tries; e.ctx.Err() == nil && !ph.Deadly && 3*n < all {
		e.fail("the checker could read %d of %d times", n, all)
	}
	e.calm(ctx, t)
	if e.ctx.Err() == nil {
		e.examined(ctx)
	}
	if e.ctx.Err() == nil {
		e.judgeGangs(ctx)
		e.judgeHistory(ctx)
		e.calmed()
	}
	if err := e.reported(ctx); err != nil && e.ctx.Err() == nil {
		e.fail("%v", err)
	}
	if e.ctx.Err() == nil {
		e.releaseOneByOne(ctx, t)
	}
	if e.ctx.Err() == nil {
		e.clear(ctx, t)
	}
	if e.ctx.Err() == nil && e.hostile != nil {
		e.besiege(ctx, ph.Length)
		e.clear(ctx, t)
	}
	if e.ctx.Err() == nil {
		now, compared = e.settle(ctx, t, baseline)
	}
	if e.ctx.Err() == nil {
		switch err := e.objects(ctx); {
		case errors.Is(err, errLeft):
			e.violate("%v", err)
		case err != nil:
			e.fail("%v", err)
		}
	}
	return now, compared
}
