// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
)

// failToBind takes a pod up to the end of its binding cycle, which has to fail, and returns the phase of
// its reservation; empty if it has none.
func (e *testEnv) failToBind(t *testing.T, pod *v1.Pod) string {
	t.Helper()
	ctx, state := t.Context(), framework.NewCycleState()
	if _, status, _ := e.fw.RunPreFilterPlugins(ctx, state, pod); !status.IsSuccess() {
		t.Fatal(status)
	}
	if status := e.fw.RunReservePluginsReserve(ctx, state, pod, "n"); !status.IsSuccess() {
		t.Fatal(status)
	}
	status := e.fw.RunPreBindPlugins(ctx, state, pod, "n")
	if status.IsSuccess() {
		status = e.fw.RunBindPlugins(ctx, state, pod, "n")
	}
	if status.Code() != fwk.Error {
		t.Fatalf("the binding ends with %v, want an error", status)
	}
	e.fw.RunReservePluginsUnreserve(ctx, state, pod, "n")
	switch left := e.state(t).Allocations.Dump(); len(left) {
	case 0:
		return ""
	case 1:
		return left[0].Phase
	default:
		t.Fatalf("in flight: %+v", left)
		return ""
	}
}

// TestAnswerProof: only certain refusals free a pod's GPUs. For a Binding, the API server returns most
// errors of its storage as a conflict: also "request timed out" of a write that etcd carried out. It was
// treated as a refusal, and the pod's GPUs were given to another pod as well.
func TestAnswerProof(t *testing.T) {
	what, because := schema.GroupResource{Resource: "pods/binding"}, errors.New("etcdserver: request timed out")
	for name, tc := range map[string]struct {
		answer error
		want   string // phase of the reservation
	}{
		"400 is made before anything is written":          {apierrors.NewBadRequest("x"), ""},
		"403 likewise":                                    {apierrors.NewForbidden(what, "p", because), ""},
		"404 is of what was read":                         {apierrors.NewNotFound(what, "p"), ""},
		"422 is made before anything is written":          {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil), ""},
		"429 likewise":                                    {apierrors.NewTooManyRequestsError("x"), ""},
		"409 may wrap an error of etcd":                   {apierrors.NewConflict(what, "p", because), "doubtful"},
		"500 likewise":                                    {apierrors.NewInternalError(because), "doubtful"},
		"503 may be made by who stands before the server": {apierrors.NewServiceUnavailable("x"), "doubtful"},
		"504 ends the wait and not the write":             {apierrors.NewTimeoutError("x", 0), "doubtful"},
		"no answer":                                       {errors.New("connection reset"), "doubtful"},
	} {
		for _, write := range []string{"PreBind", "Binding"} {
			t.Run(name+"/"+write, func(t *testing.T) {
				b := newTestEnv(t, write, topology.Name)
				fails := func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.answer }
				b.client.PrependReactor("patch", "pods", fails)
				b.client.PrependReactor("create", "pods", fails)
				if got := b.failToBind(t, b.pod("p", 2, nil)); got != tc.want {
					t.Errorf("the claim is %q, want %q", got, tc.want)
				}
			})
		}
	}
}

// wired writes pods to an API server of its own.
type wired struct {
	kubernetes.Interface
	to kubernetes.Interface
}

// IsWatchListSemanticsUnSupported returns true like the fake client, for informers.
func (wired) IsWatchListSemanticsUnSupported() bool { return true }

func (w wired) CoreV1() corev1client.CoreV1Interface { return wiredCore{w.Interface.CoreV1(), w.to} }

type wiredCore struct {
	corev1client.CoreV1Interface
	to kubernetes.Interface
}

func (w wiredCore) Pods(namespace string) corev1client.PodInterface {
	return wiredPods{w.CoreV1Interface.Pods(namespace), w.to.CoreV1().Pods(namespace)}
}

type wiredPods struct {
	corev1client.PodInterface
	to corev1client.PodInterface
}

func (w wiredPods) Bind(ctx context.Context, b *v1.Binding, o metav1.CreateOptions) error {
	return w.to.Bind(ctx, b, o)
}

func (w wiredPods) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (*v1.Pod, error) {
	return w.to.Patch(ctx, name, pt, data, o, sub...)
}

// TestRepeatedWriteRefusal: a refusal of a repeated write proves nothing. client-go repeats a write by
// itself if the answer has Retry-After.
func TestRepeatedWriteRefusal(t *testing.T) {
	for name, tc := range map[string]struct {
		first *apierrors.StatusError // with Retry-After
		want  string
	}{
		"sent once":  {nil, ""},
		"sent twice": {apierrors.NewInternalError(errors.New("carried out")), "doubtful"},
	} {
		for _, write := range []string{"PreBind", "Binding"} {
			t.Run(name+"/"+write, func(t *testing.T) {
				var asked atomic.Int32
				server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					status := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", nil)
					if asked.Add(1) == 1 && tc.first != nil {
						status = tc.first
						w.Header().Set("Retry-After", "0")
					}
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(int(status.ErrStatus.Code))
					status.ErrStatus.Kind, status.ErrStatus.APIVersion = "Status", "v1"
					if err := json.NewEncoder(w).Encode(status.ErrStatus); err != nil {
						t.Error(err)
					}
				}))
				server.EnableHTTP2 = true // as the API server has it
				server.StartTLS()
				t.Cleanup(server.Close)
				ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
				client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
				if err != nil {
					t.Fatal(err)
				}
				b := newTestEnvOf(t, setting{
					write:   write,
					through: func(c kubernetes.Interface) kubernetes.Interface { return wired{c, client} },
				}, topology.Name)
				if got := b.failToBind(t, b.pod("p", 2, nil)); got != tc.want {
					t.Errorf("after %d requests the claim is %q, want %q", asked.Load(), got, tc.want)
				}
			})
		}
	}
}
