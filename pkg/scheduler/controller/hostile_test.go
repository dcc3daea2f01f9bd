// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLyingAgent: a lying agent causes few writes, only to its own pods. It reports other GPUs a hundred
// times a second, for a pod of its node and for one of another node.
func TestLyingAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestEnv(t)
		b.pod(t, "a", "m=0,3", "1")
		elsewhere := b.pod(t, "b", "m=4,7", "2").DeepCopy()
		elsewhere.Spec.NodeName = "another"
		if err := b.store.Update(elsewhere); err != nil {
			t.Fatal(err)
		}
		stop := b.lead(t)
		for i := range 6000 {
			claim := map[string]string{"a": "m=4,7", "b": "m=1,2"}
			if i%2 == 1 {
				claim["a"] = "m=5,6"
			}
			b.publish(claim)
			time.Sleep(10 * time.Millisecond)
		}
		got := b.asked()
		if len(got) < 10 || len(got) > repairBurst+30+1 {
			t.Errorf("%d corrections in a minute, want some and at most %d", len(got), repairBurst+30+1)
		}
		for _, line := range got {
			if !strings.HasPrefix(line, "a ") {
				t.Fatalf("a pod of another node is written: %s", line)
			}
		}
		stop()
	})
}
