// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/inspect/check"
	"github.com/nvtopo/nvtopo/pkg/node/deviceplugin"
	"github.com/nvtopo/nvtopo/pkg/node/deviceplugin/kubelettest"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// programs are the three programs at work on one node, whose kubelet is a
// stand-in, with what they print.
type programs struct {
	*nodeUnderTest
	podresourcesv1.UnimplementedPodResourcesListerServer

	scheduler *devcluster.Scheduler
	endings   []func()
	logs      map[string]*syncLog // program -> what it printed
	addresses map[string]string   // program -> where its metrics are
	debug     string              // where the scheduler shows its state
	answers   map[string]string   // what it answered by program and path
	secrets   map[string]string   // what must not be printed -> what it is
}

// Get answers for kubelet: the pod is there.
func (p *programs) Get(_ context.Context, r *podresourcesv1.GetPodResourcesRequest) (*podresourcesv1.GetPodResourcesResponse, error) {
	return &podresourcesv1.GetPodResourcesResponse{PodResources: &podresourcesv1.PodResources{Name: r.GetPodName(), Namespace: r.GetPodNamespace()}}, nil
}

// runPrograms starts the programs with the shipped accounts and configuration, at
// the highest verbosity.
func runPrograms(t *testing.T, l *testEnv) *programs {
	t.Helper()
	spec := l.addNode(t, "n1", "dgx-h100")
	p := &programs{
		nodeUnderTest: l.agentOf(t, spec.Name), addresses: map[string]string{}, secrets: map[string]string{}, answers: map[string]string{},
		logs: map[string]*syncLog{schedulerAccount: {}, exporterAccount: {}, agentAccount: {}},
	}
	dir := p.startKubelet(t)
	p.path = filepath.Join(dir, "kubelet_internal_checkpoint")
	p.gave(t, nil)

	var err error
	p.scheduler, err = l.StartScheduler(t.Context(), devcluster.SchedulerOptions{
		Binary: testkit.Program(t, "nvtopo-scheduler"), Config: p.withDebug(t, withKubeconfig(t, manifests.SchedulerConfigPath)),
		ServiceAccount: l.schedulerAccount, Args: []string{"-v=10"}, Log: p.logs[schedulerAccount],
	})
	if err != nil {
		t.Fatal(err)
	}
	p.addresses[schedulerAccount] = fmt.Sprintf("127.0.0.1:%d", p.scheduler.Port())
	p.launch(t, exporterAccount, "--source=machine:dgx-h100", "--interval=1s")
	p.launch(t, agentAccount, "--plugin-dir="+dir, "--kubelet-dir="+dir, "--pod-resources-socket="+filepath.Join(dir, "podresources.sock"), "--state-dir="+t.TempDir())
	p.startPlugin(t, dir)
	return p
}

// withDebug gives the scheduler of a shipped configuration an address that is known to show its state at.
func (p *programs) withDebug(t *testing.T, config []byte) []byte {
	t.Helper()
	_, url := debugArgs(t)
	p.debug = strings.TrimPrefix(url, "https://")
	shipped := regexp.MustCompile(`debugAddress: 127\.0\.0\.1:10270\b`)
	if got := len(shipped.FindAll(config, -1)); got != 2 {
		t.Fatalf("%d plugins have the shipped debugAddress, want 2", got)
	}
	return shipped.ReplaceAll(config, []byte("debugAddress: "+p.debug))
}

// startKubelet serves what the agent needs of kubelet and returns its folder.
func (p *programs) startKubelet(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kubelet-") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	kubelet, err := kubelettest.Start(dir)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", filepath.Join(dir, "podresources.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresourcesv1.RegisterPodResourcesListerServer(server, p)
	go func() { _ = server.Serve(ln) }()
	p.endings = append(p.endings, kubelet.Stop, server.Stop)
	return dir
}

// startPlugin offers the node's GPUs to the agent, as the vendor's plugin does.
func (p *programs) startPlugin(t *testing.T, dir string) {
	t.Helper()
	devices, err := deviceplugin.Simulated("dgx-h100", p.name)
	if err != nil {
		t.Fatal(err)
	}
	plugin, err := deviceplugin.New(deviceplugin.Config{
		Resource: string(gpuResource), PluginDir: dir, KubeletSocket: filepath.Join(dir, "nvtopo", "kubelet.sock"), Devices: devices,
	}, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := plugin.Run(ctx); err != nil {
			t.Errorf("the device plugin: %v", err)
		}
	}()
	// Before the agent, which it registers with.
	p.endings = slices.Insert(p.endings, 0, func() { cancel(); <-done })
}

// launch runs one of the node's programs as its DaemonSet does.
func (p *programs) launch(t *testing.T, name string, args ...string) {
	t.Helper()
	cfg, err := p.NodeBoundConfig(t.Context(), systemNamespace, name, p.name)
	if err != nil {
		t.Fatal(err)
	}
	p.keepSecret(cfg, "the token of "+name)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := devcluster.WriteKubeconfigOf(cfg, kubeconfig); err != nil {
		t.Fatal(err)
	}
	port, err := devcluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	p.addresses[name] = fmt.Sprintf("127.0.0.1:%d", port)
	cmd := exec.CommandContext(t.Context(), testkit.Program(t, name),
		append([]string{"--node-name=" + p.name, "--kubeconfig=" + kubeconfig, "--metrics-address=" + p.addresses[name], "-v=10"}, args...)...)
	cmd.Stdout, cmd.Stderr = p.logs[name], p.logs[name]
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = waitLimit
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.endings = slices.Insert(p.endings, 0, func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("end %s: %v", name, err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s ended with %v", name, err)
		}
	})
}

// end ends all programs in an orderly way.
func (p *programs) end(t *testing.T) {
	t.Helper()
	if err := p.scheduler.Stop(t.Context()); err != nil {
		t.Errorf("stop the scheduler: %v", err)
	}
	for _, end := range p.endings {
		end()
	}
}

// work takes the programs through what they do in a cluster.
func (p *programs) work(t *testing.T) {
	t.Helper()
	defer func() {
		if t.Failed() {
			for name, log := range p.logs {
				t.Logf("%s printed last:\n%s", name, log.tail(4000))
			}
		}
	}()
	p.published(t) // the graph, and the agent's part of its status
	pod := gpuPod("p", "topology-aware-scheduler", 2).Obj()
	p.create(t, pod)
	bound := p.bound(t, pod.Name)
	chosen := choiceOf(t, bound, p.graph).Containers[0].GPUs
	p.gave(t, map[types.UID]recordedPod{bound.UID: {"main": chosen}})
	p.published(t, "p main confirmed")

	// kubelet takes others, twice: events, the second as one more of a series, and
	// annotations that follow.
	var others []string
	for _, g := range p.graph.GPUs {
		if !slices.Contains(chosen, g.UUID) {
			others = append(others, g.UUID)
		}
	}
	for _, took := range [][]string{others[:2], others[2:4]} {
		p.gave(t, map[types.UID]recordedPod{bound.UID: {"main": took}})
		p.repaired(t, bound, took)
	}
	p.said(t, bound, "GPUsReassigned")
	p.askAll(t)

	p.gave(t, map[types.UID]recordedPod{bound.UID: nil})
	p.remove(t, pod.Name)
	p.published(t)
}

// repaired waits until a pod's annotation says what kubelet took.
func (p *programs) repaired(t *testing.T, pod *v1.Pod, took []string) {
	t.Helper()
	want := slices.Sorted(slices.Values(took))
	testkit.Eventually(t, waitLimit, "the annotation follows kubelet's record", func(context.Context) (bool, string) {
		now := p.get(t, pod.Name)
		got := slices.Sorted(strings.SplitSeq(now.Annotations[allocation.GPUIDsKey], ","))
		return slices.Equal(got, want), fmt.Sprint(got)
	})
}

// askAll asks each program for its metrics with a good token, a stranger's, and
// one that is not valid.
func (p *programs) askAll(t *testing.T) {
	t.Helper()
	scraper, stranger := account(t, p.testEnv, "scraper"), account(t, p.testEnv, "stranger")
	bindCluster(t, p.client, "scraper", "nvtopo-metrics-reader")
	forged := rest.CopyConfig(stranger)
	forged.BearerToken = stranger.BearerToken[:len(stranger.BearerToken)-12] + "c3VwZXJmYWxz"
	p.keepSecret(scraper, "the scraper's token")
	p.keepSecret(stranger, "a stranger's token")
	p.keepSecret(forged, "a forged token")
	for name, addr := range p.addresses {
		p.answersOnly(t, name, addr, "/metrics", scraper, stranger, forged)
	}

	// Whoever checks the cluster has a role of its own, which has to do.
	checker := account(t, p.testEnv, "checker")
	bindCluster(t, p.client, "checker", "nvtopo-checker")
	p.keepSecret(checker, "the checker's token")
	p.answersOnly(t, schedulerAccount, p.debug, diagnosis.Path, checker, scraper, forged)
	if _, err := check.Read(t.Context(), kubernetes.NewForConfigOrDie(checker), systemNamespace); err != nil {
		t.Errorf("the role nvtopo-checker is not enough to check a cluster: %v", err)
	}
}

// answersOnly asks for a path as somebody who may, and as others who may not.
func (p *programs) answersOnly(t *testing.T, name, addr, path string, may *rest.Config, mayNot ...*rest.Config) {
	t.Helper()
	testkit.Eventually(t, waitLimit, name+" answers for "+path, func(context.Context) (bool, string) {
		code, body := ask(t, may, addr, path)
		p.answers[name+path] = body
		return code == http.StatusOK, fmt.Sprintf("%d %.200s", code, body)
	})
	for _, by := range mayNot {
		if code, _ := ask(t, by, addr, path); code != http.StatusForbidden && code != http.StatusUnauthorized {
			t.Errorf("%s answers %d for %s to somebody who may not ask", name, code, path)
		}
	}
}

// keepSecret remembers a token: its payload is no secret without the signature.
func (p *programs) keepSecret(cfg *rest.Config, what string) {
	p.secrets[cfg.BearerToken[strings.LastIndexByte(cfg.BearerToken, '.')+1:]] = what
}

// testLogs: tokens and keys are in no log, and in no answer.
func (p *programs) testLogs(t *testing.T) {
	p.secrets["PRIVATE KEY"] = "a key"
	for name, log := range p.logs {
		text := log.String()
		// Of a client whose requests are printed whole, or there is nothing to find.
		if !strings.Contains(text, "Authorization: Bearer <masked>") && !strings.Contains(text, "curl -v") {
			t.Errorf("%s is not at its most talkative: %.2000s", name, text)
		}
		for secret, what := range p.secrets {
			for line := range strings.Lines(text) {
				if strings.Contains(line, secret) {
					t.Errorf("%s printed %s: %.300s", name, what, line)
				}
			}
		}
		t.Logf("%s printed %d bytes", name, len(text))
	}
	for what, answer := range p.answers {
		for secret := range p.secrets {
			if strings.Contains(answer, secret) || len(answer) < 100 {
				t.Errorf("%s: %d bytes with a secret, or too few", what, len(answer))
			}
		}
	}
}

// syncLog is a log that several writers share.
type syncLog struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (l *syncLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *syncLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// tail is the end of the log.
func (l *syncLog) tail(n int) string {
	s := l.String()
	return s[max(0, len(s)-n):]
}
