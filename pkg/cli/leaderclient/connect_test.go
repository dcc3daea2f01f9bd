// SPDX-License-Identifier: Apache-2.0

package leaderclient

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/wsstream"
	proxyutil "k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubelet/pkg/cri/streaming/portforward"

	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

const (
	userToken      = "the user's"
	schedulerToken = "the scheduler's"
)

// apiServer serves Connect's requests: it issues tokens, and forwards ports by the code of the real API
// server and of the real runtimes below kubelet.
type apiServer struct {
	kubelet     *url.URL
	noWebSocket bool // it speaks SPDY only
	refuses     string

	mu   sync.Mutex
	seen []string // requests, guarded by mu
}

func (a *apiServer) requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.seen)
}

// ServeHTTP serves one request.
func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/system/")
	a.mu.Lock()
	a.seen = append(a.seen, r.Method+" "+path+" by "+r.Header.Get("Authorization"))
	a.mu.Unlock()
	forward := proxyutil.NewUpgradeAwareHandler(a.kubelet, nil, false, true, failing{})
	switch {
	case path == a.refuses:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden,
			Code: http.StatusForbidden, Message: path + " is forbidden",
		})
	case path == "serviceaccounts/"+Account+"/token":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(authenticationv1.TokenRequest{
			TypeMeta: metav1.TypeMeta{Kind: "TokenRequest", APIVersion: "authentication.k8s.io/v1"}, Status: authenticationv1.TokenRequestStatus{Token: schedulerToken},
		})
	case path == "pods/pod-1/portforward" && wsstream.IsWebSocketRequestWithTunnelingProtocol(r) && !a.noWebSocket:
		proxy.NewTunnelingHandler(forward).ServeHTTP(w, r)
	case path == "pods/pod-1/portforward" && r.Method == http.MethodPost:
		forward.ServeHTTP(w, r)
	default:
		http.Error(w, "unexpected", http.StatusBadRequest)
	}
}

// failing responds to requests that cannot be forwarded.
type failing struct{}

func (failing) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// servePorts forwards ports as the runtimes below kubelet do.
func servePorts(w http.ResponseWriter, r *http.Request) {
	portforward.ServePortForward(w, r, podNetwork{}, "pod-1", "", nil, time.Hour, time.Minute, portforward.SupportedProtocols)
}

// podNetwork is the network of a pod: the loopback of this machine.
type podNetwork struct{}

// PortForward copies between a stream and a port.
func (podNetwork) PortForward(ctx context.Context, _ string, _ types.UID, port int32, stream io.ReadWriteCloser) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		_, _ = io.Copy(conn, stream)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, conn)
	return err
}

// TestConnect: a client reaches the scheduler, in its pod through the code with which the real API server
// and runtimes serve ports, or directly. The scheduler gets the token made for it and never the user's; a
// server with another certificate than the published one gets nothing.
func TestConnect(t *testing.T) {
	const forwarding = "pods/pod-1/portforward"
	tests := map[string]struct {
		inPod, noWebSocket bool
		refuses            string // a path
		strange            bool   // the scheduler is not the one that published
		gone               bool   // nothing listens
		wantErr            []string
	}{
		"in a pod":                  {inPod: true},
		"in a pod, over SPDY":       {inPod: true, noWebSocket: true},
		"on a host":                 {},
		"another certificate":       {strange: true, wantErr: []string{"shows a certificate with SHA-256", "nothing was sent to it"}},
		"another one's in the pod":  {inPod: true, strange: true, wantErr: []string{"shows a certificate with SHA-256", "nothing was sent to it"}},
		"nothing listens in a pod":  {inPod: true, gone: true, wantErr: []string{"pod system/pod-1, port ", "connection refused"}},
		"nothing listens on a host": {gone: true, wantErr: []string{"connection refused", "it is no pod of system"}},
		"no right to a token":       {refuses: "serviceaccounts/" + Account + "/token", wantErr: []string{"token of ServiceAccount system/nvtopo-what-if: ", "is forbidden", "--role=nvtopo-what-if"}},
		"no right to forward ports": {inPod: true, refuses: forwarding, wantErr: []string{"pod system/pod-1: forwarding its port ", "portforward is forbidden", "--role=nvtopo-what-if"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var shown []string
			scheduler := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				shown = append(shown, r.Header.Get("Authorization"))
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				_, _ = w.Write(append([]byte("answer to "), body...))
			}))
			defer scheduler.Close()
			sum := sha256.Sum256(scheduler.Certificate().Raw)
			l := &Leader{diagnosis.Endpoint{Address: scheduler.Listener.Addr().String(), CertificateSHA256: hex.EncodeToString(sum[:])}, system, "pod-1", tc.inPod}
			if tc.strange {
				l.CertificateSHA256 = strings.Repeat("0", 2*sha256.Size)
			}
			if tc.gone {
				scheduler.Close()
			}
			kubelet := httptest.NewServer(http.HandlerFunc(servePorts))
			defer kubelet.Close()
			location, err := url.Parse(kubelet.URL)
			if err != nil {
				t.Fatal(err)
			}
			api := &apiServer{kubelet: location, noWebSocket: tc.noWebSocket, refuses: tc.refuses}
			server := httptest.NewServer(api)
			defer server.Close()
			got, err := question(t, l, &rest.Config{Host: server.URL, BearerToken: userToken})
			mu.Lock()
			defer mu.Unlock()
			if len(tc.wantErr) > 0 {
				for _, want := range tc.wantErr {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("got %v, want %q", err, want)
					}
				}
				if len(shown) > 0 {
					t.Errorf("the scheduler was shown %q", shown)
				}
				return
			}
			if err != nil || got != "answer to question, answer to question" {
				t.Errorf("got %q, error %v", got, err)
			}
			for _, token := range shown {
				if token != "Bearer "+schedulerToken {
					t.Errorf("the scheduler was shown %q", token)
				}
			}
			forwards := slices.DeleteFunc(api.requests(), func(r string) bool { return !strings.Contains(r, forwarding) })
			if want := map[bool]int{true: 1}[tc.inPod]; len(forwards) != want && !tc.noWebSocket {
				t.Errorf("the API server was asked for %q", forwards)
			}
		})
	}
}

// question sends two requests, over two connections.
func question(t *testing.T, l *Leader, config *rest.Config) (string, error) {
	t.Helper()
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Connect(t.Context(), kube, config, time.Minute)
	if err != nil {
		return "", err
	}
	defer c.Close()
	var answers []string
	for range 2 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.URL+"/p", strings.NewReader("question"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Client.Do(req)
		if err != nil {
			return "", err
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		answers = append(answers, string(text))
		c.Client.CloseIdleConnections()
	}
	return strings.Join(answers, ", "), nil
}

// resetStream is a stream that the other end has reset before anything was written.
type resetStream struct{ httpstream.Stream }

func (resetStream) Write([]byte) (int, error) { return 0, errors.New("Stream reset") }

// openConnection is a connection that stays open.
type openConnection struct{ httpstream.Connection }

func (openConnection) CloseChan() <-chan bool { return nil }

// TestWriteAfterReset checks that a write to a stream that the other end has reset returns the other end's
// error: nothing listens there, for example.
func TestWriteAfterReset(t *testing.T) {
	c := &podConn{Stream: resetStream{}, of: &tunnel{streams: openConnection{}}, faults: make(chan error, 1)}
	c.faults <- errors.New("pod system/pod-1, port 1: connection refused")
	for range 2 {
		if _, err := c.Write([]byte("hello")); err == nil || err.Error() != "pod system/pod-1, port 1: connection refused" {
			t.Errorf("got %v, want the other end's error", err)
		}
	}
}
