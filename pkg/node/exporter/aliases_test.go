// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What somebody else wrote under a key that is not ours stays, and comes back to us
// when they take it away.
func TestForeignAlias(t *testing.T) {
	r := newTestEnv(t, Config{Resync: 1})
	r.api.edit(nodePath, func(o map[string]any) {
		meta := o["metadata"].(map[string]any)
		meta["labels"].(map[string]any)["accelerator"] = "our-h100"
		meta["annotations"] = map[string]any{"topology.kubernetes.io/gpu-topology": "by hand"}
		meta["managedFields"] = []any{map[string]any{
			"manager": "kubectl-label", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
			"fieldsV1": map[string]any{"f:metadata": map[string]any{
				"f:labels":      map[string]any{"f:accelerator": map[string]any{}, "f:nvtopo.dev/gpu-count": map[string]any{}},
				"f:annotations": map[string]any{"f:topology.kubernetes.io/gpu-topology": map[string]any{}},
			}},
		}}
	})
	r.publish(t)
	labels := r.api.labels()
	if labels["accelerator"] != "our-h100" {
		t.Errorf("accelerator = %s", labels["accelerator"])
	}
	if got := r.api.annotations()["topology.kubernetes.io/gpu-topology"]; got != "by hand" {
		t.Errorf("the annotation is %s", got)
	}
	if labels["gpu-count"] != "8" || labels["nvtopo.dev/gpu-count"] != "8" {
		t.Errorf("gpu-count = %q, nvtopo.dev/gpu-count = %q", labels["gpu-count"], labels["nvtopo.dev/gpu-count"])
	}
	r.clk.Step(1)
	r.expect(t, "at resync", getNode, getTopology, putLease)

	r.api.edit(nodePath, func(o map[string]any) {
		meta := o["metadata"].(map[string]any)
		delete(meta, "managedFields")
		delete(meta["labels"].(map[string]any), "accelerator")
	})
	r.clk.Step(1)
	r.publish(t)
	if got := r.api.labels()["accelerator"]; got != "nvidia-h100" {
		t.Errorf("accelerator = %q after its owner took it away", got)
	}
}

// An admission policy of the release before knows fewer aliases; that keeps ours from no node.
func TestRefusedAliases(t *testing.T) {
	r := newTestEnv(t, Config{Resync: 1})
	r.api.refuse = func(req request) *metav1.Status {
		if req.method != http.MethodPatch || req.path != nodePath {
			return nil
		}
		for k := range req.body["metadata"].(map[string]any)["labels"].(map[string]any) {
			if !strings.HasPrefix(k, "nvtopo.dev/") {
				return failure(http.StatusForbidden, metav1.StatusReasonForbidden, "this account may not change "+k)
			}
		}
		return nil
	}
	r.expect(t, "with the older policy", getNode, getTopology, putSpec, putStatus, putLabels, putLabels, putLease)
	want := map[string]string{
		"kubernetes.io/hostname": "n1", "nvtopo.dev/gpu-interconnect": "NV18", "nvtopo.dev/gpu-count": "8",
		"nvtopo.dev/gpu-product": "NVIDIA-H100-80GB-HBM3", "nvtopo.dev/numa-nodes": "2", "nvtopo.dev/gpus-per-numa": "4",
		"nvtopo.dev/single-numa-4gpu": "true", "nvtopo.dev/single-numa-8gpu": "false",
	}
	if diff := cmp.Diff(want, r.api.labels()); diff != "" {
		t.Errorf("labels (-want,+got):\n%s", diff)
	}
	r.expect(t, "until everything is read back", getTopology, putLease)
	r.api.refuse = nil
	r.clk.Step(1)
	r.publish(t)
	if got := r.api.labels()["accelerator"]; got != "nvidia-h100" {
		t.Errorf("accelerator = %q once the policy allows it", got)
	}
}

// An exporter of the release before applies what it knows as its own. That must not
// remove an alias, which the admission policy of its release would refuse.
func TestEarlierExporterAliases(t *testing.T) {
	r := newTestEnv(t, Config{})
	r.publish(t)
	before := r.api.labels()
	earlier := marks{labels: map[string]string{LabelCount: "8"}}
	if _, err := r.exporter.api.applyMarks(t.Context(), "uid-1", FieldManager, earlier); err != nil {
		t.Fatal(err)
	}
	after := r.api.labels()
	for _, k := range aliasLabels {
		if after[k] == "" || after[k] != before[k] {
			t.Errorf("%s is %q after it, and was %q", k, after[k], before[k])
		}
	}
	if _, left := after[LabelProduct]; left {
		t.Error("a label of its own that it does not know is left")
	}
}
