// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode/gpunode"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

// TestEndedPodsAfterRestarts checks that the GPUs of ended pods are free after restarts of the agent,
// although kubelet's record keeps these pods until it admits the next one.
func TestEndedPodsAfterRestarts(t *testing.T) {
	l := startBeside(t, gpunode.Config{Agent: true})
	l.create(t, gpunode.Pod("stays", 1))
	stays := l.running(t, "stays")
	l.observe(t, stays)
	const ended = 7
	for i := range ended {
		l.create(t, gpunode.Pod(fmt.Sprintf("ends-%d", i), 1))
	}
	for i := range ended {
		l.observe(t, l.running(t, fmt.Sprintf("ends-%d", i)))
	}
	pods := l.Client.CoreV1().Pods(metav1.NamespaceDefault)
	for i := range ended {
		if err := pods.Delete(t.Context(), fmt.Sprintf("ends-%d", i), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	only := func(when string) {
		testkit.Eventually(t, patience, when+" the node's status has the one pod that runs", func(ctx context.Context) (bool, string) {
			topology, err := l.Topology(ctx)
			if err != nil {
				return false, err.Error()
			}
			var names []string
			for _, a := range topology.Status.Allocations {
				names = append(names, a.Pod)
			}
			return slices.Equal(names, []string{"stays"}), fmt.Sprintf("%q", names)
		})
	}
	only("before a restart")
	for restart := range 3 {
		if err := l.Agent.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := l.Agent.Restart(); err != nil {
			t.Fatal(err)
		}
		if err := l.waitRegistered(t.Context()); err != nil {
			t.Fatal(err)
		}
		only(fmt.Sprintf("after restart %d", restart+1))
	}
	// An agent may take its list of pods to be outdated for two seconds; only later reports about unknown
	// pods are valid.
	time.Sleep(4 * time.Second)
	only("a while after the last restart")
	begun := time.Now()
	l.create(t, gpunode.Pod("next", 4))
	pod := l.running(t, "next")
	t.Logf("a pod of 4 GPUs runs %.1f s after it was made", time.Since(begun).Seconds())
	for _, d := range differences(pod.Name, l.observe(t, pod)) {
		complain(t, d)
	}
	l.observe(t, stays)
}

func labelled(m *dto.Metric, name, value string) bool {
	return slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == name && l.GetValue() == value })
}
