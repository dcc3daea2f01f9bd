// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"os"
	"testing"
	"time"
)

func TestCPUTimeOfAProcessWithAnOddName(t *testing.T) {
	const stat = "42 (a) R (b) S 1 42 42 0 -1 4194304 100 0 0 0 250 50 7 7 20 0 1 0 100 0 0"
	got, err := parseCPUTime([]byte(stat))
	if err != nil || got != 3*time.Second {
		t.Errorf("%v, %v; want 3s", got, err)
	}
	if _, err := parseCPUTime([]byte("42 (a) R 1 2")); err == nil {
		t.Error("a short line was accepted")
	}
}

func TestOwnProcessIsMeasured(t *testing.T) {
	for start, sum := time.Now(), 0; time.Since(start) < 50*time.Millisecond; sum++ { // long enough for some ticks
	}
	if used, err := CPUTime(os.Getpid()); err != nil || used <= 0 {
		t.Errorf("CPU time %v, %v", used, err)
	}
	now, err := Resident(os.Getpid())
	if err != nil || now < 1<<20 {
		t.Errorf("memory %d, %v", now, err)
	}
	if peak, err := Peak(os.Getpid()); err != nil || peak < now {
		t.Errorf("peak memory %d, %v; %d before", peak, err, now)
	}
}
