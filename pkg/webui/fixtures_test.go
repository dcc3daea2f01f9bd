// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"bufio"
	"context"
	"encoding/json"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
	"github.com/nvtopo/nvtopo/pkg/pools/ledger"
	"github.com/nvtopo/nvtopo/pkg/webui/clusterwatch"
)

// testEnv is a server over a fake API server, with a clock that stands still.
type testEnv struct {
	kube   *fake.Clientset
	dyn    *dynamicfake.FakeDynamicClient
	clock  *clocktesting.FakeClock
	watch  *clusterwatch.Watch
	server *Server
	http   *httptest.Server
}

// newTestEnv serves a cluster until the test ends.
func newTestEnv(tb testing.TB, c *viewtest.Cluster, change func(*Config)) *testEnv {
	tb.Helper()
	b := &testEnv{kube: fake.NewClientset(), clock: clocktesting.NewFakeClock(c.Now)}
	for i := range c.Nodes {
		b.add(tb, &c.Nodes[i])
	}
	for i := range c.Pods {
		b.add(tb, &c.Pods[i])
	}
	for i := range c.Leases {
		b.add(tb, &c.Leases[i])
	}
	for i := range c.Budgets {
		b.add(tb, &c.Budgets[i])
	}
	scheme := runtime.NewScheme()
	kinds := map[schema.GroupVersionResource]string{v1alpha1.GroupVersionResource: "NodeGPUTopologyList", v1alpha1.ClusterTopologyGVR: "ClusterTopologyList"}
	for _, r := range []schema.GroupVersionResource{
		{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"},
		{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "workloads"},
		{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "localqueues"},
		{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "clusterqueues"},
		poolv1alpha1.ComputePoolGVR, poolv1alpha1.UsageRecordGVR, poolv1alpha1.UsageBatchGVR, poolv1alpha1.TenantAccountGVR, poolv1alpha1.PriceBookGVR, poolv1alpha1.InvoiceGVR,
		v1.SchemeGroupVersion.WithResource("namespaces"),
	} {
		kinds[r] = r.Resource + "List"
	}
	b.dyn = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(scheme, kinds)
	for i := range c.Topologies {
		c.Topologies[i].APIVersion, c.Topologies[i].Kind = v1alpha1.SchemeGroupVersion.String(), v1alpha1.Kind
		b.addCustom(tb, v1alpha1.GroupVersionResource, &c.Topologies[i])
	}
	if c.ClusterTopology != nil {
		b.addCustom(tb, v1alpha1.ClusterTopologyGVR, c.ClusterTopology)
	}
	var err error
	b.watch, err = clusterwatch.New(clusterwatch.Config{
		Kube: b.kube, Dynamic: b.dyn, LeaseNamespace: "nvtopo-system", Clock: b.clock,
	})
	if err != nil {
		tb.Fatal(err)
	}
	config := Config{
		Watch: b.watch, Access: OneUser{Name: "me"}, Hosts: []string{"localhost", "127.0.0.1", "::1"}, Version: "v1", Clock: b.clock,
		Ledger: ledger.NewReader(b.dyn),
		Events: func(context.Context, string, string) ([]v1.Event, error) { return nil, nil },
	}
	if change != nil {
		change(&config)
	}
	if b.server, err = New(config); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(tb.Context())
	ended := make(chan struct{}, 2)
	go func() { b.watch.Run(ctx); ended <- struct{}{} }()
	go func() { b.server.Run(ctx); ended <- struct{}{} }()
	b.http = httptest.NewUnstartedServer(b.server.Handler())
	b.http.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	b.http.Start()
	tb.Cleanup(func() {
		cancel()
		<-ended
		<-ended
		b.http.CloseClientConnections()
		b.http.Close()
	})
	testkit.Eventually(tb, time.Minute, "the cluster is read", func(context.Context) (bool, string) { return b.watch.Settled(), "" })
	return b
}

func (e *testEnv) add(tb testing.TB, o runtime.Object) {
	tb.Helper()
	if err := e.kube.Tracker().Add(o); err != nil {
		tb.Fatal(err)
	}
}

func (e *testEnv) addCustom(tb testing.TB, resource schema.GroupVersionResource, o runtime.Object) {
	tb.Helper()
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		tb.Fatal(err)
	}
	object := &unstructured.Unstructured{Object: u}
	if _, err := e.dyn.Resource(resource).Namespace(object.GetNamespace()).Create(tb.Context(), object, metav1.CreateOptions{}); err != nil {
		tb.Fatal(err)
	}
}

// sample returns the cluster of viewtest.
func sample(t *testing.T) *viewtest.Cluster {
	t.Helper()
	c, err := viewtest.Sample()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// asked is a request that a test makes.
type asked struct {
	method, path string
	header       map[string]string
	host, body   string
}

// answered is the head of an answer.
type answered struct {
	StatusCode int
	Header     http.Header
}

// ask sends a request and returns its answer.
func (e *testEnv) ask(t *testing.T, q asked) (head answered, body string) {
	t.Helper()
	method := q.method
	if method == "" {
		method = http.MethodGet
	}
	r, err := http.NewRequestWithContext(t.Context(), method, e.http.URL+q.path, strings.NewReader(q.body))
	if err != nil {
		t.Fatal(err)
	}
	if q.body == "" {
		r.Body, r.ContentLength = nil, 0
	}
	for key, value := range q.header {
		r.Header.Set(key, value)
	}
	if q.host != "" {
		r.Host = q.host
	}
	answer, err := e.http.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var text strings.Builder
	if _, err := bufio.NewReader(answer.Body).WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	return answered{answer.StatusCode, answer.Header}, text.String()
}

// get reads a document.
func (e *testEnv) get(t *testing.T, path string, into any) {
	t.Helper()
	answer, text := e.ask(t, asked{path: path})
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, answer.StatusCode, text)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("GET %s: %v in %s", path, err, text)
	}
}

// received is an event of the stream.
type received struct{ id, name, data string }

// follow opens the stream. The channel is closed when it ends; hangUp ends it.
func (e *testEnv) follow(t *testing.T, header map[string]string) (hangUp func(), events <-chan received) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.http.URL+"/api/v1/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range header {
		r.Header.Set(key, value)
	}
	answer, err := e.http.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	hangUp = func() { answer.Body.Close() }
	t.Cleanup(hangUp)
	all := make(chan received, 1024)
	go func() {
		defer close(all)
		lines := bufio.NewScanner(answer.Body)
		lines.Buffer(nil, 2*maxEvent)
		var one received
		for lines.Scan() {
			key, value, _ := strings.Cut(lines.Text(), ": ")
			switch key {
			case "id":
				one.id = value
			case "event":
				one.name = value
			case "data":
				one.data = value
			case "":
				all <- one
				one = received{}
			}
		}
	}()
	return hangUp, all
}

// next is the next event; it is an error if the stream ends before.
func next(t *testing.T, events <-chan received) received {
	t.Helper()
	select {
	case e, ok := <-events:
		if !ok {
			t.Fatal("the stream has ended")
		}
		return e
	case <-time.After(time.Minute):
		t.Fatal("no event within a minute")
	}
	return received{}
}

// pages returns a file system as a front end.
func pages(files map[string]string) fs.FS {
	out := fstest.MapFS{}
	for name, text := range files {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}
