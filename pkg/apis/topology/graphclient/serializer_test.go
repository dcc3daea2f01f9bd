// SPDX-License-Identifier: Apache-2.0

package graphclient

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// usualAndOwn returns the serializers of a client without and with ours.
func usualAndOwn(tb testing.TB) (usual, own runtime.NegotiatedSerializer) {
	tb.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		tb.Fatal(err)
	}
	usual = serializer.NewCodecFactory(scheme).WithoutConversion()
	return usual, serializers{usual}
}

// watched reads one answer of a watch, with what ends it.
func watched(tb testing.TB, body string, n runtime.NegotiatedSerializer) string {
	tb.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body)) // the client may have heard enough
	}))
	defer server.Close()
	gv := v1alpha1.SchemeGroupVersion
	client, err := rest.RESTClientFor(&rest.Config{Host: server.URL, APIPath: "/apis", ContentConfig: rest.ContentConfig{
		GroupVersion: &gv, NegotiatedSerializer: n, ContentType: runtime.ContentTypeJSON,
	}})
	if err != nil {
		tb.Fatal(err)
	}
	w, err := client.Get().Resource(v1alpha1.Resource).VersionedParams(&metav1.ListOptions{Watch: true}, metav1.ParameterCodec).Watch(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	defer w.Stop()
	var out []string
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			out = append(out, "ERROR") // in what words is the decoder's own
			if st, ok := e.Object.(*metav1.Status); ok && st.Reason == metav1.StatusReasonExpired {
				out = append(out, st.Message)
			}
			continue
		}
		out = append(out, fmt.Sprintf("%s %T %+v", e.Type, e.Object, e.Object))
	}
	return strings.Join(out, "\n")
}

const object = `{"apiVersion":"topology.nvtopo.dev/v1alpha1","kind":"NodeGPUTopology","metadata":{"name":"n","resourceVersion":"7","managedFields":[{"manager":"m","fieldsV1":{"f:x":{}}}]},` +
	`"spec":{"nodeUID":"u","gpus":[{"id":"a","index":0,"memory":"80Gi","numaNode":-1}],"numaNodes":[]},"later":{"x":[1]}}`

// TestWatchDecoding: a watch is read as by the usual client. It compares with what the usual
// serializers read.
func TestWatchDecoding(t *testing.T) {
	usual, own := usualAndOwn(t)
	for name, tc := range map[string]struct {
		body string
		want string // in what is read; beside it, both read the same
	}{
		"an object":           {`{"type":"ADDED","object":` + object + "}\n", "ADDED *v1alpha1.NodeGPUTopology"},
		"several":             {`{"type":"ADDED","object":` + object + "}\n" + `{"type":"DELETED","object":` + object + "}\n", "DELETED *v1alpha1.NodeGPUTopology"},
		"without a line end":  {`{"type":"MODIFIED","object":` + object + "}", "MODIFIED *v1alpha1.NodeGPUTopology"},
		"with blanks":         {`{ "type" : "ADDED", "object" : ` + object + " }\n", "ADDED *v1alpha1.NodeGPUTopology"},
		"in the other order":  {`{"object":` + object + `,"type":"ADDED"}` + "\n", "ADDED *v1alpha1.NodeGPUTopology"},
		"fields in any order": {`{"type":"ADDED","object":{"kind":"NodeGPUTopology","spec":{"nodeUID":"u"},"apiVersion":"topology.nvtopo.dev/v1alpha1"}}` + "\n", "NodeUID:u"},
		"a bookmark": {
			`{"type":"BOOKMARK","object":{"apiVersion":"topology.nvtopo.dev/v1alpha1","kind":"NodeGPUTopology","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n",
			"BOOKMARK *v1alpha1.NodeGPUTopology",
		},
		"an error of the API server": {
			`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}}` + "\n", "too old",
		},
		"an object of another kind": {`{"type":"ADDED","object":{"apiVersion":"v1","kind":"Table","rows":[]}}` + "\n", "ERROR"},
		"an event nobody knows":     {`{"type":"LOST","object":` + object + "}\n", ""},
		"a field of another type":   {`{"type":"ADDED","object":` + strings.Replace(object, `"index":0`, `"index":"x"`, 1) + "}\n", "ERROR"},
		"a quantity that is none":   {`{"type":"ADDED","object":` + strings.Replace(object, "80Gi", "much", 1) + "}\n", "ERROR"},
		"half an object":            {`{"type":"ADDED","object":` + object[:200], ""},
		"no object":                 {`{"type":"ADDED","object":null}` + "\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			want, got := watched(t, tc.body, usual), watched(t, tc.body, own)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-usual,+ours):\n%s", diff)
			}
			if !strings.Contains(got, tc.want) {
				t.Errorf("read: %s\nwant %q in it", got, tc.want)
			}
		})
	}
}

// FuzzDecode has our decoders read what the usual ones read, in an event and by itself.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(object))
	f.Add([]byte(`{"apiVersion":"topology.nvtopo.dev/v1alpha1","kind":"NodeGPUTopology","metadata":{"name":"n"},"metadata":{"labels":{"a":"b"}}}`))
	f.Add([]byte(`{"apiVersion":"topology.nvtopo.dev/v1alpha1","kind":"NodeGPUTopology","Spec":{"nodeUID":"u"},"spec":{"bootID":"b"}}`))
	f.Add([]byte(`{"apiVersion":"topology.nvtopo.dev/v1alpha1","kind":"NodeGPUTopology","kind":"NodeGPUTopologyList"}`))
	usual, own := usualAndOwn(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		want, wantErr := decoded(usual, data)
		got, gotErr := decoded(own, data)
		if (wantErr == nil) != (gotErr == nil) {
			t.Fatalf("errors %v and %v", wantErr, gotErr)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-usual,+ours):\n%s", diff)
		}
	})
}

func decoded(n runtime.NegotiatedSerializer, data []byte) (runtime.Object, error) {
	info, _ := runtime.SerializerInfoForMediaType(n.SupportedMediaTypes(), runtime.ContentTypeJSON)
	return runtime.Decode(n.DecoderToVersion(info.Serializer, v1alpha1.SchemeGroupVersion), data)
}
