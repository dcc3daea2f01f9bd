// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// TestMessageControls: the condition has no control characters of a driver's error, for which the
// whole status would be refused.
func TestMessageControls(t *testing.T) {
	const want = "driver:  [2J lost  é"
	if got := ready(nil, errors.New("driver: \x1b[2J lost\r\né")).Message; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	if got, want := ready([]Problem{{GPU: "GPU-5", Text: "a\u009bb"}}, nil).Message, (Problem{GPU: "GPU-5", Text: "a b"}).String(); got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}

// TestProblemLogging: a problem is logged once when it begins.
func TestProblemLogging(t *testing.T) {
	var log bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	r := newTestEnv(t, Config{})
	refused := Problem{GPU: "GPU-5", Text: "its events cannot be watched: GPU is lost"}
	other := Problem{Text: "something else"}
	for _, step := range []struct {
		when     string
		problems []Problem
		want     int // lines on the refused events so far
	}{
		{"while all is well", nil, 0},
		{"when it begins", []Problem{refused}, 1},
		{"while it lasts", []Problem{refused}, 1},
		{"when there is another", []Problem{other, refused}, 1},
		{"when it is over", []Problem{other}, 1},
		{"when it begins anew", []Problem{other, refused}, 2},
	} {
		r.src.problems = step.problems
		if err := r.exporter.PublishOnce(ctx); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(log.String(), refused.Text); got != step.want {
			t.Errorf("%s: %d lines, want %d:\n%s", step.when, got, step.want, log.String())
		}
	}
}

// TestHealthLogging: a change of health is logged once.
func TestHealthLogging(t *testing.T) {
	var log bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	r := newTestEnv(t, Config{})
	for _, step := range []struct {
		when, unhealthy, degraded string
		want                      int // lines so far
	}{
		{"while all is well", "", "", 0},
		{"when it is lost", "GPU is lost: a", "", 1},
		{"when the driver puts it otherwise", "GPU is lost: b", "", 1},
		{"when it is back, but its links fail", "", "NVLink error: Xid 74", 2},
		{"when all is well again", "", "", 3},
		{"while it stays so", "", "", 3},
	} {
		g := uniform(t, 8, "NVIDIA H100 80GB HBM3", "NV18")
		g.GPUs[3].Unhealthy, g.GPUs[3].Degraded = step.unhealthy, step.degraded
		r.src.show(g)
		if err := r.exporter.PublishOnce(ctx); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(log.String(), "A GPU's health changed"); got != step.want {
			t.Errorf("%s: %d lines, want %d:\n%s", step.when, got, step.want, log.String())
		}
	}
}
