// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnused(t *testing.T) {
	granted := []Rule{
		Everywhere("batch", []string{"jobs", "jobs/status"}, []string{"get", "patch"}),
		In("system", "coordination.k8s.io", []string{"leases"}, []string{"update"}, "leader", "other"),
	}
	all := map[Right]int{
		{Verb: "get", Group: "batch", Resource: "jobs", Namespace: "a", Name: "j"}:                                                  200,
		{Verb: "patch", Group: "batch", Resource: "jobs", Namespace: "a", Name: "j"}:                                                200,
		{Verb: "get", Group: "batch", Resource: "jobs", Subresource: "status", Namespace: "a", Name: "j"}:                           200,
		{Verb: "patch", Group: "batch", Resource: "jobs", Subresource: "status", Namespace: "a", Name: "j"}:                         409,
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "system", Name: "leader"}:                     200,
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "elsewhere", Name: "other"}:                   200,
		{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews", Subresource: "", Namespace: "", Name: ""}: 201,
	}
	const other = "update leases.coordination.k8s.io other in system"
	tests := map[string]struct {
		asked   map[Right]int
		reasons map[string]string
		want    []string
	}{
		"one of two names is used":      {all, nil, []string{other + ": granted, and never used"}},
		"what is not used is explained": {all, map[string]string{other: "no test has it"}, nil},
		"a reason for what is used": {all, map[string]string{other: "so", "get jobs.batch": "so"}, []string{
			`get jobs.batch: used, although "so"`,
		}},
		"a reason for what is not granted": {all, map[string]string{other: "so", "delete jobs.batch": "so"}, []string{
			"delete jobs.batch: has a reason to be unused, and is not granted",
		}},
		"nothing is used": {nil, nil, []string{
			"get jobs.batch: granted, and never used", "get jobs/status.batch: granted, and never used",
			"patch jobs.batch: granted, and never used", "patch jobs/status.batch: granted, and never used",
			"update leases.coordination.k8s.io leader in system: granted, and never used", other + ": granted, and never used",
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Unused(granted, tc.asked, tc.reasons)); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequests(t *testing.T) {
	const log = `{"verb":"patch","user":{"username":"a"},"objectRef":{"apiGroup":"batch","resource":"jobs","subresource":"status","namespace":"n","name":"j"},"responseStatus":{"code":403}}
{"verb":"patch","user":{"username":"a"},"objectRef":{"apiGroup":"batch","resource":"jobs","subresource":"status","namespace":"n","name":"j"},"responseStatus":{"code":200}}
{"verb":"get","user":{"username":"a"},"responseStatus":{"code":200}}
{"verb":"list","user":{"username":"b"},"objectRef":{"resource":"pods"},"responseStatus":{"code":200}}
{"verb":"list","user":{"userna`
	want := map[string]map[Right]int{
		"a": {{Verb: "patch", Group: "batch", Resource: "jobs", Subresource: "status", Namespace: "n", Name: "j"}: 403},
		"b": {{Verb: "list", Resource: "pods"}: 200},
	}
	got, err := Requests(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if _, err := Requests(strings.NewReader(strings.Repeat("a", 2<<20))); err == nil {
		t.Error("a line of two MiB is no error")
	}
}
