// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	audit "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
)

// endsOnce checks that each pod's status is written once when it starts and once when it ends, although
// the pod changes meanwhile. By itself kwok writes the end again, with another time, at each late change.
func endsOnce(t *testing.T, c *devcluster.Cluster, client kubernetes.Interface) {
	t.Helper()
	const keep = "devcluster.nvtopo.dev/kept-by-a-test"
	pods := client.CoreV1().Pods("default")
	name := func(i int) string { return fmt.Sprintf("once-%d", i) }
	const many = 20
	for i := range many {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name(i), Finalizers: []string{keep}}, Spec: podSpec()}
		if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		bind(t, client, name(i), "n1")
		waitPhase(t, client, "default", name(i), v1.PodRunning)
	}
	for i := range many {
		if err := pods.Delete(t.Context(), name(i), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for change := range 10 {
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"change":"%d"}}}`, change)
			if _, err := pods.Patch(t.Context(), name(i), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range many {
		waitPhase(t, client, "default", name(i), v1.PodFailed)
		if _, err := pods.Patch(t.Context(), name(i), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		waitGone(t, client, name(i))
	}
	// Requests are in the log before they are answered.
	wrote, err := statusWrites(c.AuditLog(), "kwok")
	if err != nil {
		t.Fatal(err)
	}
	for i := range many {
		if got := wrote[name(i)]; got != 2 {
			t.Errorf("kwok wrote the status of pod %s %d times, want 2: when it began and when it ended", name(i), got)
		}
	}
}

// statusWrites counts a program's changes of pods' statuses in an audit log, by pod.
func statusWrites(log, program string) (map[string]int, error) {
	f, err := os.Open(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	wrote := map[string]int{}
	for d := json.NewDecoder(f); ; {
		var e audit.Event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return wrote, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		if o := e.ObjectRef; o != nil && o.Resource == "pods" && o.Subresource == "status" && strings.HasPrefix(e.UserAgent, program) &&
			e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusOK {
			wrote[o.Name]++
		}
	}
}
