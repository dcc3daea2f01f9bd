// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/whatif"
)

const whatIfPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n"

// fakeScheduler is a program that answers what it is given as a snapshot.
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
		"an unknown form":      {whatIfPod, []string{"-f", "-", "--snapshot", none, "-o", "xml"}, `--output "xml"`, ExitUsage},
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

// TestWhatIfOfPresentPod: who asks for a pod that is there reads how to ask.
func TestWhatIfOfPresentPod(t *testing.T) {
	pod := schedtest.Pod("train").Obj()
	err := admit(t.Context(), fake.NewClientset(pod), &whatif.Asked{Pods: []*v1.Pod{pod}})
	if want := "pod default/train is there already: ask for one of another name, or with --as-is, which leaves out the dry run"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}

// TestLeaderSelection: the leading scheduler is asked. Standbys and busy processes are passed over,
// others' errors are not.
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
		want string // the answer, or what the error says
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
