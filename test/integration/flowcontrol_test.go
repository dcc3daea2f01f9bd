// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
)

// levelRecorder keeps the UID of the priority level that the API server assigned to the last request.
type levelRecorder struct{ last atomic.Value }

// wrap records the levels of one client's requests.
func (r *levelRecorder) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err == nil {
			r.last.Store(types.UID(resp.Header.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID)))
		}
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestPriorityLevels checks that requests of the programs share no priority level with requests by which
// a node may flood the API server. It sends the programs' requests, with their accounts' tokens, and
// reads the priority level from the response.
func TestPriorityLevels(t *testing.T) { //nolint:tparallel // its steps share one cluster
	c := startCluster(t, devcluster.Config{})
	if err := c.InstallManifests(t.Context()); err != nil {
		t.Fatal(err)
	}
	admin := clientFor(t, c)
	plainNode(t, admin, "n1")

	renew := func(prefix string) func(context.Context, caller) error {
		return func(ctx context.Context, by caller) error {
			l := nodelease.Lease{Namespace: systemNamespace, Name: prefix + "n1", Node: "n1", NodeUID: "u", Manager: "test"}
			return l.Renew(ctx, by.kube, time.Now())
		}
	}
	// The object's existence and the result do not matter here.
	publish := func(sub ...string) func(context.Context, caller) error {
		return func(ctx context.Context, by caller) error {
			_, err := by.dyn.Resource(v1alpha1.GroupVersionResource).Patch(ctx, "n1", types.MergePatchType, []byte("{}"), metav1.PatchOptions{}, sub...)
			return err
		}
	}
	readNode := func(ctx context.Context, by caller) error {
		_, err := by.kube.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
		return err
	}
	listPods := func(ctx context.Context, by caller) error {
		_, err := by.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: 1})
		return err
	}
	readLease := func(ctx context.Context, by caller) error {
		_, err := by.kube.CoordinationV1().Leases(systemNamespace).Get(ctx, "nvtopo-scheduler", metav1.GetOptions{})
		return err
	}
	tests := map[string]struct {
		account string
		request func(context.Context, caller) error
		want    string
	}{
		"the exporter's renewal":          {exporterAccount, renew(nodelease.ExporterPrefix), "nvtopo-heartbeats"},
		"the agent's renewal":             {agentAccount, renew(nodelease.AgentPrefix), "nvtopo-heartbeats"},
		"a graph":                         {exporterAccount, publish(), "nvtopo-graphs"},
		"health":                          {exporterAccount, publish("status"), "nvtopo-graphs"},
		"what kubelet recorded":           {agentAccount, publish("status"), "nvtopo-graphs"},
		"the agent's list of pods":        {agentAccount, listPods, "workload-low"},
		"the exporter's Node":             {exporterAccount, readNode, "workload-low"},
		"the leader's Lease":              {schedulerAccount, readLease, "leader-election"},
		"the scheduler's list of pods":    {schedulerAccount, listPods, "workload-high"},
		"another Lease, read by an agent": {agentAccount, readLease, "nvtopo-heartbeats"},
	}
	levels := map[types.UID]string{}
	list, err := admin.FlowcontrolV1().PriorityLevelConfigurations().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		levels[list.Items[i].UID] = list.Items[i].Name
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cfg, err := c.NodeBoundConfig(t.Context(), systemNamespace, tc.account, "n1")
			if err != nil {
				t.Fatal(err)
			}
			r := &levelRecorder{}
			cfg.Wrap(r.wrap)
			by := callerOf(t, cfg, nil)
			// New objects take effect a little later.
			testkit.Eventually(t, waitLimit, "a request is in level "+tc.want, func(ctx context.Context) (bool, string) {
				answer := tc.request(ctx, by)
				uid, _ := r.last.Load().(types.UID)
				return levels[uid] == tc.want, fmt.Sprintf("in level %q (the answer was %v)", levels[uid], answer)
			})
		})
	}
}
