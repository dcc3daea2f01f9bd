// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const token = "c2Vzc2lvbg" //nolint:gosec // of a test

// tensor is a tensor of the protocol.
type tensor struct {
	Name     string    `json:"name"`
	Shape    []int     `json:"shape"`
	Datatype string    `json:"datatype"`
	Data     []float64 `json:"data"`
}

// server is a small inference server with one model, which doubles its input.
type server struct {
	*httptest.Server

	mu      sync.Mutex
	seen    []string // guarded by mu
	headers http.Header
	hold    chan struct{} // infer waits for it, if it is set
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"name":"small","version":"1"}`)
	})
	mux.HandleFunc("GET /v2/health/live", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v2/health/ready", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v2/models/double", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"name":"double"}`) })
	mux.HandleFunc("GET /v2/models/double/versions/1/ready", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v2/models/double/infer", s.infer)
	mux.HandleFunc("POST /v2/models/double/versions/1/infer", s.infer)
	mux.HandleFunc("POST /v2/operations/TENSOR_OP", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) })
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen, s.headers = append(s.seen, r.Method+" "+r.URL.RequestURI()), r.Header
		s.mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) infer(w http.ResponseWriter, r *http.Request) {
	if s.hold != nil {
		<-s.hold
	}
	var request struct {
		Inputs []tensor `json:"inputs"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for i := range request.Inputs {
		for j := range request.Inputs[i].Data {
			request.Inputs[i].Data[j] *= 2
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"model_name": "double", "outputs": request.Inputs})
}

func (s *server) took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// newGate returns a gate in front of a server.
func newGate(t *testing.T, s *server, change func(*Options)) (base string) {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{
		Server: u, Token: func() (string, error) { return token, nil }, Operations: []string{"MODEL_FORWARD"}, MaxBody: 1 << 10, MaxRequests: 2,
	}
	if change != nil {
		change(&opts)
	}
	g, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(g)
	t.Cleanup(front.Close)
	return front.URL
}

const doubled = `{"inputs":[{"name":"x","shape":[2],"datatype":"FP64","data":[1.5,-2]}]}`

// ask sends a request unchanged: the standard library's client would clean its path.
func ask(t *testing.T, base, method, path, body string, headers map[string]string) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, base, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.URL.Opaque = strings.TrimPrefix(base, "http:") + path
	r.Header.Set("Authorization", "Bearer "+token)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for k, v := range headers {
		r.Header.Set(k, v)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data), resp.Header
}

// TestTensorRequest: a tensor request passes the gate to its model.
func TestTensorRequest(t *testing.T) {
	s := newServer(t)
	base := newGate(t, s, nil)
	status, body, _ := ask(t, base, "POST", "/v2/models/double/versions/1/infer", doubled, map[string]string{
		"Cookie": "secret", "X-Forwarded-For": "10.0.0.1", "Accept": "application/json",
	})
	var got struct {
		Outputs []tensor `json:"outputs"`
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	want := []tensor{{Name: "x", Shape: []int{2}, Datatype: "FP64", Data: []float64{3, -4}}}
	if diff := cmp.Diff(want, got.Outputs); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
	for _, header := range []string{"Authorization", "Cookie", "X-Forwarded-For"} {
		if got := s.headers.Get(header); got != "" {
			t.Errorf("the server sees %s: %s", header, got)
		}
	}
	if got := s.headers.Get("Accept"); got != "application/json" {
		t.Errorf("the server sees Accept: %q", got)
	}
}

// TestAllowedRequests: only requests of the protocol are let through.
func TestAllowedRequests(t *testing.T) {
	long := strings.Repeat(" ", 2<<10)
	tests := map[string]struct {
		method, path, body string
		headers            map[string]string
		operations         []string
		want               int
		wantCode           string // of a refusal
	}{
		"the server's name":              {method: "GET", path: "/v2", want: 200},
		"it lives":                       {method: "GET", path: "/v2/health/live", want: 200},
		"it is ready":                    {method: "GET", path: "/v2/health/ready", want: 200},
		"a model":                        {method: "GET", path: "/v2/models/double", want: 200},
		"a version is ready":             {method: "GET", path: "/v2/models/double/versions/1/ready", want: 200},
		"through a model":                {method: "POST", path: "/v2/models/double/infer", body: doubled, want: 200},
		"kubelet's question needs none":  {method: "GET", path: "/readyz", headers: map[string]string{"Authorization": ""}, want: 200},
		"and nothing of it goes on":      {method: "GET", path: "/readyz", body: long, headers: map[string]string{"Authorization": "", "Content-Type": "x"}, want: 200},
		"what the server says of itself": {method: "POST", path: "/v2/models/double/infer", body: "{", want: 400},
		"a model that is not there":      {method: "GET", path: "/v2/models/other", want: 404},

		"without a token":                       {method: "GET", path: "/v2", headers: map[string]string{"Authorization": ""}, want: 401, wantCode: "UNAUTHENTICATED"},
		"another token":                         {method: "GET", path: "/v2", headers: map[string]string{"Authorization": "Bearer other"}, want: 401, wantCode: "UNAUTHENTICATED"},
		"a longer one":                          {method: "GET", path: "/v2", headers: map[string]string{"Authorization": "Bearer " + token + "x"}, want: 401, wantCode: "UNAUTHENTICATED"},
		"another scheme":                        {method: "GET", path: "/v2", headers: map[string]string{"Authorization": "Basic " + token}, want: 401, wantCode: "UNAUTHENTICATED"},
		"who has no token learns nothing":       {method: "GET", path: "/secret", headers: map[string]string{"Authorization": ""}, want: 401, wantCode: "UNAUTHENTICATED"},
		"loading a model":                       {method: "POST", path: "/v2/repository/models/double/load", body: "{}", want: 404, wantCode: "NOT_FOUND"},
		"shared memory":                         {method: "POST", path: "/v2/systemsharedmemory/region/x/register", body: "{}", want: 404, wantCode: "NOT_FOUND"},
		"metrics":                               {method: "GET", path: "/metrics", want: 404, wantCode: "NOT_FOUND"},
		"version 1":                             {method: "POST", path: "/v1/models/double:predict", body: "{}", want: 404, wantCode: "NOT_FOUND"},
		"the root":                              {method: "GET", path: "/", want: 404, wantCode: "NOT_FOUND"},
		"gRPC":                                  {method: "POST", path: "/inference.GRPCInferenceService/ModelInfer", want: 404, wantCode: "NOT_FOUND"},
		"out of the models":                     {method: "GET", path: "/v2/models/..", want: 404, wantCode: "NOT_FOUND"},
		"out of the models, further":            {method: "GET", path: "/v2/models/../../metrics", want: 404, wantCode: "NOT_FOUND"},
		"an escape":                             {method: "GET", path: "/v2/models/a%2F..%2Fb", want: 400, wantCode: "BAD_PATH"},
		"a query":                               {method: "GET", path: "/v2/models/double?x=1", want: 400, wantCode: "BAD_PATH"},
		"an empty query":                        {method: "GET", path: "/v2/models/double?", want: 400, wantCode: "BAD_PATH"},
		"two slashes":                           {method: "GET", path: "/v2//models/double", want: 404, wantCode: "NOT_FOUND"},
		"deleting a model":                      {method: "DELETE", path: "/v2/models/double", want: 405, wantCode: "METHOD_NOT_ALLOWED"},
		"reading a result":                      {method: "GET", path: "/v2/models/double/infer", want: 405, wantCode: "METHOD_NOT_ALLOWED"},
		"too much, as it says":                  {method: "POST", path: "/v2/models/double/infer", body: long, want: 413, wantCode: "TOO_LARGE"},
		"a pickle":                              {method: "POST", path: "/v2/models/double/infer", body: "\x80\x04.", headers: map[string]string{"Content-Type": "application/x-python-pickle"}, want: 415, wantCode: "BAD_TYPE"},
		"no type":                               {method: "POST", path: "/v2/models/double/infer", body: "{}", headers: map[string]string{"Content-Type": ""}, want: 415, wantCode: "BAD_TYPE"},
		"a compressed body":                     {method: "POST", path: "/v2/models/double/infer", body: "x", headers: map[string]string{"Content-Encoding": "gzip"}, want: 415, wantCode: "BAD_TYPE"},
		"models are not among the operations":   {method: "POST", path: "/v2/models/double/infer", body: doubled, operations: []string{"TENSOR_OP"}, want: 403, wantCode: "NOT_ALLOWED"},
		"a tensor operation":                    {method: "POST", path: "/v2/operations/TENSOR_OP", body: "{}", operations: []string{"TENSOR_OP"}, want: 200},
		"a tensor operation that is not listed": {method: "POST", path: "/v2/operations/TENSOR_OP", body: "{}", want: 501, wantCode: "UNIMPLEMENTED"},
		"memory of a GPU":                       {method: "POST", path: "/v2/operations/CUDA_MALLOC", body: "{}", want: 501, wantCode: "UNIMPLEMENTED"},
		"a kernel, though it is listed":         {method: "POST", path: "/v2/operations/CUDA_LAUNCH", body: "{}", operations: []string{"CUDA_LAUNCH"}, want: 501, wantCode: "UNIMPLEMENTED"},
		"an operation that nobody knows":        {method: "POST", path: "/v2/operations/EXEC", body: "{}", operations: []string{"EXEC"}, want: 404, wantCode: "NOT_FOUND"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			base := newGate(t, s, func(o *Options) {
				if tc.operations != nil {
					o.Operations = tc.operations
				}
			})
			status, body, header := ask(t, base, tc.method, tc.path, tc.body, tc.headers)
			if status != tc.want {
				t.Fatalf("got %d %s, want %d", status, body, tc.want)
			}
			if tc.wantCode == "" {
				if len(s.took()) != 1 {
					t.Errorf("the server was asked %q", s.took())
				}
				return
			}
			var refusal struct{ Error, Code string }
			if err := json.Unmarshal([]byte(body), &refusal); err != nil || refusal.Code != tc.wantCode || refusal.Error == "" {
				t.Errorf("got %s (%v), want code %s and a reason", body, err, tc.wantCode)
			}
			if (status == http.StatusUnauthorized) != (header.Get("WWW-Authenticate") == "Bearer") {
				t.Errorf("WWW-Authenticate: %q with %d", header.Get("WWW-Authenticate"), status)
			}
			if took := s.took(); len(took) > 0 {
				t.Errorf("the server was asked %q", took)
			}
		})
	}
}

// TestBodyCount: a body of undeclared length is counted as it is read.
func TestBodyCount(t *testing.T) {
	s := newServer(t)
	base := newGate(t, s, nil)
	chunks, w := io.Pipe()
	go func() {
		_, _ = w.Write(bytes.Repeat([]byte(" "), 4<<10)) // the gate may not read it all
		_ = w.Close()
	}()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v2/models/double/infer", chunks)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("got %s, want 413", resp.Status)
	}
}

// TestConcurrencyLimit: too many requests at a time are turned away.
func TestConcurrencyLimit(t *testing.T) {
	s := newServer(t)
	s.hold = make(chan struct{})
	base := newGate(t, s, func(o *Options) { o.MaxRequests = 1 })
	first := make(chan int, 1)
	go func() {
		status, _, _ := ask(t, base, "POST", "/v2/models/double/infer", doubled, nil)
		first <- status
	}()
	for len(s.took()) == 0 {
		if t.Context().Err() != nil {
			t.Fatal("the first request does not come")
		}
	}
	status, _, header := ask(t, base, "POST", "/v2/models/double/infer", doubled, nil)
	if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
		t.Errorf("got %d, Retry-After %q, want 503", status, header.Get("Retry-After"))
	}
	close(s.hold)
	if got := <-first; got != http.StatusOK {
		t.Errorf("the first request: %d", got)
	}
}

// TestUnresponsiveServer: a server that does not answer is an error.
func TestUnresponsiveServer(t *testing.T) {
	s := newServer(t)
	base := newGate(t, s, nil)
	s.Close()
	if status, body, _ := ask(t, base, "GET", "/v2", "", nil); status != http.StatusBadGateway {
		t.Errorf("got %d %s, want 502", status, body)
	}
	if status, _, _ := ask(t, base, "GET", "/readyz", "", nil); status != http.StatusBadGateway {
		t.Errorf("ready: got %d, want 502", status)
	}
}

// TestExchangedToken: a replaced token is valid at once.
func TestExchangedToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	s := newServer(t)
	base := newGate(t, s, func(o *Options) { o.Token = TokenFile(path) })
	try := func(content, bearer string) int {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		status, _, _ := ask(t, base, "GET", "/v2", "", map[string]string{"Authorization": "Bearer " + bearer})
		return status
	}
	if status, _, _ := ask(t, base, "GET", "/v2", "", nil); status != http.StatusServiceUnavailable {
		t.Errorf("without a file: %d, want 503", status)
	}
	for _, tc := range []struct {
		content, bearer string
		want            int
	}{{"one\n", "one", 200}, {"two", "one", 401}, {"two", "two", 200}, {"", "", 503}, {strings.Repeat("x", 5000), "x", 503}} {
		if got := try(tc.content, tc.bearer); got != tc.want {
			t.Errorf("%.10q with %q: got %d, want %d", tc.content, tc.bearer, got, tc.want)
		}
	}
}

// TestMissingLimits: a gate without limits is refused.
func TestMissingLimits(t *testing.T) {
	if _, err := New(Options{Server: &url.URL{}, Token: TokenFile("x"), MaxRequests: 1}); err == nil {
		t.Error("a gate without a limit of bodies was made")
	}
}

// TestServeContext: Serve ends with its context.
func TestServeContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var config net.ListenConfig
	ln, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, ln, http.NotFoundHandler()) }()
	if status, _, _ := ask(t, "http://"+ln.Addr().String(), "GET", "/", "", nil); status != http.StatusNotFound {
		t.Errorf("got %d", status)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// FuzzJudge: for any path, the server sees only calls of the protocol.
func FuzzJudge(f *testing.F) {
	for _, path := range []string{"/v2", "/v2/models/m/infer", "/v2/models/../x", "//", "/v2/operations/CUDA_FREE", "/v2/models/m/versions/1/ready"} {
		f.Add("GET", path)
		f.Add("POST", path)
	}
	f.Fuzz(func(t *testing.T, method, path string) {
		v := judge(method, path, []string{"MODEL_FORWARD", "TENSOR_OP"})
		if v != passed {
			if v.status < 400 || v.code == "" || v.reason == "" {
				t.Fatalf("%s %q: refused as %+v", method, path, v)
			}
			return
		}
		if method != http.MethodGet && method != http.MethodPost {
			t.Fatalf("%s %q passes", method, path)
		}
		if !strings.HasPrefix(path, "/v2") || strings.Contains(path, "/.") || strings.Contains(path, "//") {
			t.Fatalf("%s %q passes", method, path)
		}
	})
}
