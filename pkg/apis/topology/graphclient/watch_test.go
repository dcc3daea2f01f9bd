// SPDX-License-Identifier: Apache-2.0

package graphclient

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// BenchmarkWatch reads objects from a watch, as at a scheduler's start; ns/op is of one.
func BenchmarkWatch(b *testing.B) {
	for _, name := range []string{"dgx1-v100", "dgx-h100"} {
		b.Run(name, func(b *testing.B) { benchmarkWatch(b, objectOf(b, name)) })
	}
}

func benchmarkWatch(b *testing.B, object []byte) {
	b.Helper()
	event := fmt.Appendf(nil, `{"type":"ADDED","object":%s}`+"\n", object)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for range b.N {
			if _, err := w.Write(event); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	client, err := restClient(&rest.Config{Host: server.URL})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(object)))
	b.ReportAllocs()
	b.ResetTimer()
	w, err := client.Get().Resource(v1alpha1.Resource).VersionedParams(&metav1.ListOptions{Watch: true}, metav1.ParameterCodec).Watch(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer w.Stop()
	read := 0
	for e := range w.ResultChan() {
		if _, ok := e.Object.(*v1alpha1.NodeGPUTopology); !ok || e.Type != watch.Added {
			b.Fatalf("%s of %T", e.Type, e.Object)
		}
		read++
	}
	if read != b.N {
		b.Fatalf("%d objects were read, want %d", read, b.N)
	}
}

// objectOf is a machine's object as an API server sends it.
func objectOf(tb testing.TB, name string) []byte {
	tb.Helper()
	m, err := machine.Lookup(name)
	if err != nil {
		tb.Fatal(err)
	}
	g, err := m.GraphFor("n")
	if err != nil {
		tb.Fatal(err)
	}
	text, err := json.Marshal(v1alpha1.FromGraph("n", "", g))
	if err != nil {
		tb.Fatal(err)
	}
	// An API server has the fields in the order of their names.
	var sorted map[string]any
	if err := json.Unmarshal(text, &sorted); err != nil {
		tb.Fatal(err)
	}
	if text, err = json.Marshal(sorted); err != nil {
		tb.Fatal(err)
	}
	return text
}
