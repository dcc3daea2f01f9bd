// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
)

// TestAPIServerRestart checks that an API server that crashed ends its watches, and comes back at its
// address with all its objects.
func TestAPIServerRestart(t *testing.T) {
	c := startAlone(t, devcluster.Config{})
	client := clientFor(t, c)
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	if _, err := maps.Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	watch, err := maps.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	for range 2 {
		start := time.Now()
		if err := c.CrashAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Logf("the crash took %v", time.Since(start)) // an orderly end gives clients a minute
		if _, err := maps.Get(t.Context(), "kept", metav1.GetOptions{}); err == nil {
			t.Error("a server that crashed answers")
		}
		if err := c.CrashAPIServer(t.Context()); err == nil {
			t.Error("a server that is down was crashed again")
		}
		if err := c.StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.StartAPIServer(t.Context()); err == nil {
			t.Error("a server that runs was started again")
		}
		if _, err := maps.Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
			t.Errorf("after the restart: %v", err)
		}
	}
	ended := time.After(waitLimit)
	for open := true; open; {
		select {
		case _, open = <-watch.ResultChan():
		case <-ended:
			t.Fatal("the watch has outlived its server")
		}
	}
}
