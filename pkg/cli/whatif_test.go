// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
)

const whatIfPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n"

// fakeScheduler is a program that prints the given answer for a snapshot.
func fakeScheduler(t *testing.T, answer string) (program, snapshot string) {
	t.Helper()
	dir := t.TempDir()
	program, snapshot = filepath.Join(dir, "program"), filepath.Join(dir, "snapshot")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n[ \"$1\" = what-if ] || exit 9\n[ \"$(cat \"$5\")\" ] || exit 8\ncat \"$3\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(snapshot, []byte(answer), 0o600); err != nil {
		t.Fatal(err)
	}
	return program, snapshot
}

func TestWhatIfText(t *testing.T) {
	program, snapshot := fakeScheduler(t, `{"version":1,"at":"2026-01-02T03:04:05Z","pods":[
{"pod":"a/p","outcome":"Placed","node":"n1","gpuIndices":"0,3","numaNodes":[0,1],"linkClass":"NV2","ringBandwidth":"50","rank":0,
 "candidates":[{"node":"n1","score":9},{"node":"n2","score":9},{"node":"n3","score":8}],"equal":2},
{"pod":"a/q","outcome":"Placed","node":"n2"}]}`)
	got := mustRun(t, whatIfPod, "what-if", "-f", "-", "--snapshot", snapshot, "--program", program)
	want := `POD  OUTCOME  NODE  GPUS  NUMA  LINK  RING GB/s  RANK  EQUAL NODES
a/p  Placed   n1    0,3   0,1   NV2   50         0     2
a/q  Placed   n2    -     -     -     -          -     -
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

// TestWhatIfUnreadKeys: keys of pods and of templates that look like nvtopo's and have no effect are
// reported as in explain, once for all pods of a template.
func TestWhatIfUnreadKeys(t *testing.T) {
	const (
		template = "template: {metadata: {annotations: {nvtopo.dev/min-bandwdth: 100GB/s}}, spec: {containers: [{name: c}]}}"
		message  = "Annotation nvtopo.dev/min-bandwdth is not known; nearest is nvtopo.dev/min-bandwidth; the pod is scheduled without it\n"
	)
	for name, tc := range map[string]struct{ input, want string }{
		"a pod":         {"apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {nvtopo.dev/min-bandwdth: 100GB/s}}\nspec: {containers: [{name: c}]}\n", "default/p: " + message},
		"a Deployment":  {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 2, selector: {}, " + template + "}\n", "default/web-what-if-0, default/web-what-if-1: " + message},
		"a StatefulSet": {"apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec: {selector: {}, " + template + "}\n", "default/db-0: " + message},
		"a Job":         {"apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {parallelism: 6, " + template + "}\n", "default/j-0, default/j-1, default/j-2, default/j-3 and 2 more: " + message},
		"a label": {
			"apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {template: {metadata: {labels: {nvtopo.dev/min-link: NV4}}, spec: {containers: [{name: c}]}}}\n",
			"default/j-0: Label nvtopo.dev/min-link is not known; nearest is the annotation nvtopo.dev/min-link; the pod is scheduled without it\n",
		},
		"keys that are read": {strings.ReplaceAll(whatIfPod, "name: p", "name: p, annotations: {nvtopo.dev/min-bandwidth: 100GB/s}"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			program, snapshot := fakeScheduler(t, `{"version":1,"pods":[]}`)
			cmd := New(programName)
			var out, errOut strings.Builder
			cmd.SetOut(&out)
			cmd.SetErr(&errOut)
			cmd.SetIn(strings.NewReader(tc.input))
			cmd.SetArgs([]string{"what-if", "-f", "-", "--snapshot", snapshot, "--program", program})
			if err := cmd.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, errOut.String()); diff != "" {
				t.Errorf("standard error (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWhatIfSaysWhy: the reasons for the places of pods are printed, in the words and on the scale of
// explain.
func TestWhatIfSaysWhy(t *testing.T) {
	const scored = `{"choice":{"node":"n1","best":{"ring":[0,3],"linkClass":"NV2","bandwidthGBps":50,"bestGBps":50},"bestNode":"n1","compared":3,
 "notCompared":[{"cause":"FewGPUs","text":"fewer free GPUs than asked","nodes":2}],
 "decision":{"v":1,"node":"n1","at":"2026-01-02T03:04:05Z","of":2,"c":[{"n":"n1","r":50000000,"t":[1000,1000,0],"s":7000},{"n":"n2","r":50000000,"t":[1000,800,0],"s":6400}]}},
 "behind":[{"node":"n2","set":{"ring":[1,2],"linkClass":"NV2","bandwidthGBps":50,"bestGBps":50},"why":"score 64.00, 6.00 less"},{"node":"n3","set":{"ring":[0]},"why":"left to larger pods"}]}`
	const only = `{"choice":{"node":"n1","best":{"ring":[0]},"bestNode":"n1","compared":1,"notCompared":[{"cause":"FewGPUs","nodes":1},{"cause":"StaleGraph","nodes":1}]}}`
	const member = `{"choice":{"node":"n1"},"gang":{"name":"gang a/g"},"evidence":["gang a/g: 2 × V100 in r1, 3 ms"]}`
	const elsewhere = `{"choice":{"node":"n1","best":{"ring":[0]},"bestNode":"n2","compared":2}}`
	for name, tc := range map[string]struct {
		whys []string
		want string
	}{
		"the best of several": {[]string{scored}, `
a/p-0 on n1: the best of 3 nodes that would take it
  next n2: GPUs 1,2, NV2, 50 GB/s of 50; score 64.00, 6.00 less
  next n3: GPU 0; left to larger pods
  2 nodes take no part: 2 for FewGPUs

NODE  SCORE  RING GB/S  BANDWIDTH  LATENCY  KEPT FOR OTHERS
n1    70.00  50         1.000      1.000    0.000
n2    64.00  50         1.000      0.800    0.000
`},
		"the only one": {[]string{only}, `
a/p-0 on n1: no other node would take it
  2 nodes take no part: 1 for FewGPUs, 1 for StaleGraph
`},
		"members of a gang are told once": {[]string{member, member, only, member, member, member}, `
a/p-0, a/p-1, a/p-3, a/p-4 and 1 more by the plan of gang a/g
  gang a/g: 2 × V100 in r1, 3 ms

a/p-2 on n1: no other node would take it
  2 nodes take no part: 1 for FewGPUs, 1 for StaleGraph
`},
		"other plugins decided": {[]string{elsewhere}, `
a/p-0 on n1: by its GPUs alone n2 would come first, with GPU 0; other plugins of the scheduler decided
`},
		"some are not explained": {[]string{only, "null"}, `
a/p-0 on n1: no other node would take it
  2 nodes take no part: 1 for FewGPUs, 1 for StaleGraph

For 1 pod more it is not written here: ask about fewer at once
`},
		"an older scheduler explains none": {[]string{"null"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var pods []string
			for i, why := range tc.whys {
				pods = append(pods, fmt.Sprintf(`{"pod":"a/p-%d","outcome":"Placed","node":"n1","devices":[{"ids":["g"]}],"why":%s}`, i, why))
			}
			program, snapshot := fakeScheduler(t, `{"version":1,"pods":[`+strings.Join(pods, ",")+`]}`)
			got := mustRun(t, whatIfPod, "what-if", "-f", "-", "--snapshot", snapshot, "--program", program)
			_, got, _ = strings.Cut(got, strings.Repeat("\n", 2))
			if got != "" {
				got = "\n" + got
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("why (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIfRefusals(t *testing.T) {
	_, old := fakeScheduler(t, `{"version":9}`)
	program, none := fakeScheduler(t, "")
	for name, tc := range map[string]struct {
		input string
		args  []string
		want  string
		code  int
	}{
		"no file":              {whatIfPod, []string{"--snapshot", none}, "--file", ExitUsage},
		"no cluster to ask":    {whatIfPod, []string{"-f", "-", "--kubeconfig", none}, "kubeconfig: there is none", ExitInput},
		"two to ask":           {whatIfPod, []string{"-f", "-", "--snapshot", none, "--scheduler", "https://x:1"}, "want one of --scheduler and --snapshot", ExitUsage},
		"an unknown form":      {whatIfPod, []string{"-f", "-", "--snapshot", none, "-o", "wide"}, `--output "wide": want table, json or yaml`, ExitUsage},
		"no pod":               {"", []string{"-f", "-", "--snapshot", none, "--program", program}, "standard input: there is no pod", ExitInput},
		"no program":           {whatIfPod, []string{"-f", "-", "--snapshot", none, "--program", "/none"}, "--program /none", ExitInput},
		"an answer of another": {whatIfPod, []string{"-f", "-", "--snapshot", old, "--program", program}, "the answer has version 9", ExitInput},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, tc.input, append([]string{"what-if"}, tc.args...)...)
			if err == nil || !strings.Contains(err.Error(), tc.want) || ExitCode(err) != tc.code {
				t.Errorf("got %v, exit code %d, want %q and %d", err, ExitCode(err), tc.want, tc.code)
			}
		})
	}
}

// TestWhatIfOfPresentPod: the error for a pod that exists already has the advice how to ask.
func TestWhatIfOfPresentPod(t *testing.T) {
	pod := schedtest.Pod("train").Obj()
	_, err := admit(t.Context(), fake.NewClientset(pod), &whatif.Asked{Pods: []*v1.Pod{pod}})
	if want := "pod default/train is there already: ask for one of another name, or with --as-is, which leaves out the dry run"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}

// TestWhatIfOfTenantsPod: the error for a pod that the API server refuses or gates has the advice how to
// ask all the same.
func TestWhatIfOfTenantsPod(t *testing.T) {
	gate := []v1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
	waits := `spec.schedulingGates[0] "kueue.x-k8s.io/admission": the scheduler does not look at the pod before the gate is taken away`
	for name, tc := range map[string]struct {
		own, added []v1.PodSchedulingGate
		refusal    error
		want       string // the error, or else the pod's message
	}{
		"refused": {
			refusal: apierrors.NewForbidden(v1.Resource("pods"), "train", errors.New(`admission webhook "mpod.kb.io" denied the request: no queue`)),
			want: `pod default/train: the API server does not admit it: pods "train" is forbidden: admission webhook "mpod.kb.io" denied the request: no queue; ` +
				"to ask the scheduler all the same, add --as-is, which leaves out the dry run",
		},
		"gated":                   {added: gate, want: waits + "; the dry run added the gate: to ask as if it were taken away, add --as-is, which leaves out the dry run"},
		"with a gate of its own":  {own: gate, added: gate, want: waits},
		"admitted as it was sent": {want: waits},
	} {
		t.Run(name, func(t *testing.T) {
			pod := schedtest.Pod("train").Obj()
			pod.Spec.SchedulingGates = tc.own
			kube := fake.NewClientset()
			kube.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				admitted := pod.DeepCopy()
				admitted.Spec.SchedulingGates = tc.added
				return true, admitted, tc.refusal
			})
			answer := &whatif.Answer{Pods: []whatif.Pod{{Pod: "default/train", Message: waits}}}
			gated, err := admit(t.Context(), kube, &whatif.Asked{Pods: []*v1.Pod{pod}})
			tellGated(answer, gated)
			got := answer.Pods[0].Message
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("what is said (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLeaderSelection: the request goes to the leading scheduler. Standbys and busy processes are skipped;
// errors of others are not.
func TestLeaderSelection(t *testing.T) {
	server := func(code int, words string) string {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, words, code) }))
		t.Cleanup(s.Close)
		return s.URL
	}
	standby, busy, leader, broken := server(http.StatusServiceUnavailable, "standby"), server(http.StatusTooManyRequests, "busy"), server(http.StatusOK, "yes"), server(http.StatusForbidden, "may not")
	client := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(client.Close)
	for name, tc := range map[string]struct {
		urls []string
		want string // the answer, or a part of the error
		fail bool
	}{
		"behind a standby":      {[]string{standby, busy, leader}, "yes", false},
		"nobody leads":          {[]string{standby, busy}, "standby", true},
		"somebody refuses":      {[]string{broken, leader}, "may not", true},
		"an address with paths": {[]string{leader + "/x"}, "want https://host:port", true},
	} {
		t.Run(name, func(t *testing.T) {
			a := schedulerAccess{schedulers: tc.urls}
			var got string
			err := a.fromScheduler(t.Context(), client.Client(), "/p", nil, func(r io.Reader) error {
				text, err := io.ReadAll(r)
				got = string(text)
				return err
			})
			if tc.fail {
				got = errors.Join(err).Error()
			}
			if (err != nil) != tc.fail || !strings.Contains(got, tc.want) {
				t.Errorf("answer %q, error %v, want %q", got, err, tc.want)
			}
		})
	}
}
