// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/testkit"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/remotesession"
)

// gateImage is the image of the gates of remote sessions.
const gateImage = "example.com/nvtopo-pool-controller"

const sessionPool = `
  poolType: gpu
  capacity: {total: 8}
  quotas: [{tenant: POOL-a, limit: 2, guaranteed: 1}]`

// session creates a session that leases GPUs for tenant a.
func (s *scenario) session(t *testing.T, name string, gpus int) {
	t.Helper()
	s.yaml(t, fmt.Sprintf(`apiVersion: pool.nvtopo.dev/v1alpha1
kind: RemoteGPUSession
metadata: {name: %s, namespace: POOL-a}
spec: {pool: POOL, gpus: %d, ttlSeconds: 3600, server: {image: example.com/server}}
`, name, gpus))
}

// waitSession waits until a session of tenant a is in a phase, for a reason.
func (s *scenario) waitSession(t *testing.T, name string, phase poolv1alpha1.SessionPhase, reason string) *poolv1alpha1.RemoteGPUSession {
	t.Helper()
	session := &poolv1alpha1.RemoteGPUSession{}
	s.waitFor(t, fmt.Sprintf("session %s is %s, %s", name, phase, reason), func(ctx context.Context) (bool, string) {
		if err := s.Get(ctx, client.ObjectKey{Namespace: s.tenant("a"), Name: name}, session); err != nil {
			return false, err.Error()
		}
		c := meta.FindStatusCondition(session.Status.Conditions, poolv1alpha1.ConditionReady)
		return session.Status.Phase == phase && c != nil && c.Reason == reason, fmt.Sprintf("%+v", session.Status)
	})
	return session
}

// gone waits until no object of a session is left.
func (s *scenario) gone(t *testing.T, name string) {
	t.Helper()
	s.waitFor(t, "nothing is left of session "+name, func(ctx context.Context) (bool, string) {
		key := client.ObjectKey{Namespace: s.tenant("a"), Name: remotesession.Name(name)}
		for _, o := range []client.Object{&batchv1.Job{}, &v1.Service{}, &v1.Secret{}, &networkingv1.NetworkPolicy{}} {
			if err := s.Get(ctx, key, o); !apierrors.IsNotFound(err) {
				return false, fmt.Sprintf("%T is there still: %v", o, err)
			}
		}
		pods := s.podsOf(t, "a", client.MatchingLabels{"pool.nvtopo.dev/session": name})
		return len(pods) == 0, fmt.Sprintf("%d pods", len(pods))
	})
}

// TestRemoteSession checks a session's life: it waits for its quota, serves, is metered, expires, and
// leaves nothing.
func TestRemoteSession(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.tenants(t, "a")
	s.computePool(t, sessionPool)
	s.ready(t)
	s.session(t, "first", 2)
	first := s.waitSession(t, "first", poolv1alpha1.SessionReady, remotesession.ReasonServes)
	if want := "http://first-remote." + s.tenant("a") + ".svc"; first.Status.Endpoint != want {
		t.Errorf("endpoint %s, want %s", first.Status.Endpoint, want)
	}
	if first.Status.Tenant != s.tenant("a") || first.Status.ExpiresAt == nil || first.Status.TokenSecret == nil {
		t.Fatalf("status %+v", first.Status)
	}
	started := meta.FindStatusCondition(first.Status.Conditions, remotesession.ConditionStarted)
	if started == nil || first.Status.ExpiresAt.Sub(started.LastTransitionTime.Time) != time.Hour {
		t.Errorf("it expires at %v, want an hour after %v", first.Status.ExpiresAt, started)
	}
	pods := s.podsOf(t, "a", client.MatchingLabels{"pool.nvtopo.dev/session": "first"})
	if len(pods) != 1 {
		t.Fatalf("%d pods, want 1", len(pods))
	}
	distinct(t, pods, 2)

	s.session(t, "second", 1) // the tenant's limit is 2
	s.waitSession(t, "second", poolv1alpha1.SessionPending, remotesession.ReasonWaitingForQuota)

	s.passTime(t, "first", time.Hour)
	s.waitSession(t, "first", poolv1alpha1.SessionExpired, remotesession.ReasonExpired)
	s.gone(t, "first")
	s.waitSession(t, "second", poolv1alpha1.SessionReady, remotesession.ReasonServes)
	s.recorded(t, pods[0].UID)

	s.remove(t, &poolv1alpha1.RemoteGPUSession{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant("a"), Name: "second"}})
	s.gone(t, "second")
}

// TestExpiredSessionQuota checks that an expired session keeps its quota until its pod is gone, or others
// would get devices that are in use.
func TestExpiredSessionQuota(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.tenants(t, "a")
	s.computePool(t, sessionPool)
	s.ready(t)
	s.session(t, "first", 2)
	s.waitSession(t, "first", poolv1alpha1.SessionReady, remotesession.ReasonServes)
	pod := s.podsOf(t, "a", client.MatchingLabels{"pool.nvtopo.dev/session": "first"})[0]
	let := s.linger(t, pod)
	s.session(t, "second", 1) // the tenant's limit is 2
	s.waitSession(t, "second", poolv1alpha1.SessionPending, remotesession.ReasonWaitingForQuota)

	s.passTime(t, "first", time.Hour)
	s.waitSession(t, "first", poolv1alpha1.SessionExpired, remotesession.ReasonExpired)
	s.waitFor(t, "the pod of the first is ending", func(ctx context.Context) (bool, string) {
		err := s.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return err == nil && pod.DeletionTimestamp != nil, fmt.Sprintf("%s, %v", pod.Status.Phase, err)
	})
	s.settled(t)
	s.get(t, pod, pod.Namespace, pod.Name)
	w, err := s.workload(t.Context(), "a", remotesession.Name("first"))
	if err != nil || w == nil || !meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadQuotaReserved) {
		t.Errorf("the pod of the first is %s, and its Workload holds no quota: %+v, %v", pod.Status.Phase, w, err)
	}
	s.waits(t, "a", remotesession.Name("second"))

	let()
	s.gone(t, "first")
	s.waitSession(t, "second", poolv1alpha1.SessionReady, remotesession.ReasonServes)
	s.recorded(t, pod.UID)
}

// passTime makes a session ready for a longer time: the time from which its end is computed is in its
// status.
func (s *scenario) passTime(t *testing.T, name string, by time.Duration) {
	t.Helper()
	session := &poolv1alpha1.RemoteGPUSession{}
	s.get(t, session, s.tenant("a"), name)
	base := session.DeepCopy()
	started := meta.FindStatusCondition(session.Status.Conditions, remotesession.ConditionStarted)
	started.LastTransitionTime = metav1.Time{Time: started.LastTransitionTime.Add(-by)}
	if err := s.Status().Patch(t.Context(), session, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
}

// recorded waits until the end of a pod of tenant a is recorded.
func (s *scenario) recorded(t *testing.T, pod types.UID) {
	t.Helper()
	s.waitFor(t, "the session's devices are recorded", func(ctx context.Context) (bool, string) {
		var records poolv1alpha1.UsageRecordList
		if err := s.List(ctx, &records); err != nil {
			return false, err.Error()
		}
		i := slices.IndexFunc(records.Items, func(r poolv1alpha1.UsageRecord) bool { return strings.HasPrefix(r.Name, string(pod)) })
		if i < 0 {
			return false, "no record"
		}
		r := &records.Items[i]
		return r.Spec.Tenant == s.tenant("a") && r.Status.End != nil, fmt.Sprintf("%+v %+v", r.Spec, r.Status)
	})
}

// TestRepairedSession checks that changed or deleted objects of a serving session are restored; with a
// new token its server restarts.
func TestRepairedSession(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.tenants(t, "a")
	s.computePool(t, sessionPool)
	s.ready(t)
	s.session(t, "first", 1)
	session := s.waitSession(t, "first", poolv1alpha1.SessionReady, remotesession.ReasonServes)
	before := s.podsOf(t, "a", client.MatchingLabels{"pool.nvtopo.dev/session": "first"})[0]
	key := client.ObjectKey{Namespace: s.tenant("a"), Name: remotesession.Name("first")}
	looks := 0
	look := func() { // now, and not within a minute
		looks++
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"test/looks":"%d"}}}`, looks)
		if err := s.Patch(t.Context(), session.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
			t.Fatal(err)
		}
	}
	var service v1.Service
	var policy networkingv1.NetworkPolicy
	s.get(t, &service, key.Namespace, key.Name)
	s.get(t, &policy, key.Namespace, key.Name)
	restored := func(what string) {
		t.Helper()
		look()
		s.waitFor(t, what, func(ctx context.Context) (bool, string) {
			var gotService v1.Service
			var gotPolicy networkingv1.NetworkPolicy
			if err := errors.Join(s.Get(ctx, key, &gotService), s.Get(ctx, key, &gotPolicy)); err != nil {
				return false, err.Error()
			}
			diff := cmp.Diff(policy.Spec, gotPolicy.Spec) + cmp.Diff(service.Spec.Selector, gotService.Spec.Selector) + cmp.Diff(service.Spec.Ports, gotService.Spec.Ports)
			return diff == "", diff
		})
	}
	s.remove(t, service.DeepCopy())
	s.remove(t, policy.DeepCopy())
	restored("Service and NetworkPolicy are made anew")
	for _, o := range []struct {
		object client.Object
		change string
	}{
		{&service, `{"spec":{"selector":{"app":"another"}}}`},
		{&policy, `{"spec":{"ingress":[{}]}}`},
	} {
		if err := s.Patch(t.Context(), o.object.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(o.change))); err != nil {
			t.Fatal(err)
		}
	}
	restored("Service and NetworkPolicy are as they were")

	s.remove(t, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
	look()
	s.waitFor(t, "another pod serves, with another token", func(ctx context.Context) (bool, string) {
		pods := s.podsOf(t, "a", client.MatchingLabels{"pool.nvtopo.dev/session": "first"})
		var secret v1.Secret
		err := s.Get(ctx, key, &secret)
		other := slices.ContainsFunc(pods, func(p *v1.Pod) bool { return p.UID != before.UID && p.Status.Phase == v1.PodRunning })
		return err == nil && other, fmt.Sprint(err, len(pods))
	})
	s.waitSession(t, "first", poolv1alpha1.SessionReady, remotesession.ReasonServes)
	var job batchv1.Job
	s.get(t, &job, key.Namespace, key.Name)
	if job.Status.Failed > 0 {
		t.Errorf("the Job counts %d failures, of %d that it may have", job.Status.Failed, *job.Spec.BackoffLimit)
	}
	s.waitFor(t, "an event says so", func(ctx context.Context) (bool, string) {
		var events v1.EventList
		err := s.List(ctx, &events, client.InNamespace(key.Namespace))
		told := slices.ContainsFunc(events.Items, func(e v1.Event) bool {
			return e.Reason == "SessionTokenReplaced" && strings.Contains(e.Message, "starts anew")
		})
		return err == nil && told, fmt.Sprint(err, len(events.Items))
	})
}

// TestImpossibleSession checks that a server that ends for good ends the session, and that a request that
// the session cannot have is reported.
func TestImpossibleSession(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.namespace(t, "a", nil)
	s.computePool(t, sessionPool)
	s.ready(t)
	s.session(t, "nobody", 1)
	s.waitSession(t, "nobody", poolv1alpha1.SessionPending, remotesession.ReasonNoTenant)
	var jobs batchv1.JobList
	if err := s.List(t.Context(), &jobs, client.InNamespace(s.tenant("a"))); err != nil || len(jobs.Items) > 0 {
		t.Fatalf("a session of no tenant has %d jobs, %v", len(jobs.Items), err)
	}
	label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, poolv1alpha1.LabelTenant, s.tenant("a"))
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.tenant("a")}}
	if err := s.Patch(t.Context(), namespace, client.RawPatch(types.MergePatchType, label)); err != nil {
		t.Fatal(err)
	}
	s.waitSession(t, "nobody", poolv1alpha1.SessionReady, remotesession.ReasonServes)
	s.end(t, s.podsOf(t, "a", client.MatchingLabels{"pool.nvtopo.dev/session": "nobody"})[0])
	s.waitSession(t, "nobody", poolv1alpha1.SessionFailed, remotesession.ReasonServerEnded)
	s.gone(t, "nobody")
}

// TestSessionGate runs the gate with the pod's arguments and the token in the Secret, in front of a
// server of ours that speaks the protocol.
func TestSessionGate(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.tenants(t, "a")
	s.computePool(t, sessionPool)
	s.ready(t)
	s.session(t, "served", 1)
	session := s.waitSession(t, "served", poolv1alpha1.SessionReady, remotesession.ReasonServes)
	var secret v1.Secret
	s.get(t, &secret, s.tenant("a"), session.Status.TokenSecret.Name)
	token := string(secret.Data[remotesession.TokenKey])
	if len(token) < 40 {
		t.Fatalf("a token of %d characters", len(token))
	}
	pod := s.podsOf(t, "a", client.MatchingLabels{"pool.nvtopo.dev/session": "served"})[0]
	if image := pod.Spec.InitContainers[0].Image; image != gateImage {
		t.Errorf("the gate's image is %s", image)
	}
	if q := pod.Spec.Containers[0].Resources.Limits[topologyv1alpha1.DefaultResource]; q.Value() != 1 {
		t.Errorf("the server has %s GPUs, want 1", q.String())
	}
	base := runGate(t, pod.Spec.InitContainers[0].Args, token)
	for _, tc := range []struct {
		path, bearer string
		want         int
	}{
		{"/v2/models/double/infer", token, http.StatusOK},
		{"/v2/models/double/infer", "another", http.StatusUnauthorized},
		{"/v2/operations/CUDA_MALLOC", token, http.StatusNotImplemented},
		{"/v2/operations/TENSOR_OP", token, http.StatusNotImplemented},
		{"/v2/repository/index", token, http.StatusNotFound},
	} {
		if got := post(t, base+tc.path, tc.bearer); got != tc.want {
			t.Errorf("%s: got %d, want %d", tc.path, got, tc.want)
		}
	}
}

// runGate runs the gate with the arguments of a pod, except its address, its server and the path of its
// token, which are of this machine; and returns its URL once its server is ready.
func runGate(t *testing.T, args []string, token string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the server sees the token")
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"model_name": "double", "outputs": []any{}})
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	var config net.ListenConfig
	ln, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	args = slices.Clone(args)
	for i, a := range args {
		switch flag, _, _ := strings.Cut(a, "="); flag {
		case "--listen":
			args[i] = "--listen=" + address
		case "--server":
			args[i] = "--server=" + server.URL
		case "--token-file":
			args[i] = "--token-file=" + file
		}
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), testkit.Program(t, "nvtopo-pool-controller"), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { <-ended })
	testkit.Eventually(t, patience, "the gate serves", func(ctx context.Context) (bool, string) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", http.NoBody)
		if err != nil {
			return false, err.Error()
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return false, err.Error()
		}
		return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK, resp.Status
	})
	return "http://" + address
}

// post sends an empty request with a token and returns the status.
func post(t *testing.T, url, bearer string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"inputs":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+bearer)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}
