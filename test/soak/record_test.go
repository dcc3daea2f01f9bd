// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/yaml"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
)

const (
	// slower is the factor by which operations are slower than in the soak while they are recorded: pods
	// then live for minutes, as graphs over time need.
	slower = 16
	// scrapeInterval is short, since the recording covers minutes and not days.
	scrapeInterval = "5s"
	// scrapeAfter is the time for the last changes to be scraped.
	scrapeAfter = 10 * time.Second
)

// TestRecording makes a real Prometheus record the programs' metrics during a slow churn, and has the
// recording drawn: `make dashboard-pictures`. NVTOPO_RECORD_PROMETHEUS is Prometheus' program, and
// NVTOPO_RECORD_DURATION the duration of the churn. NVTOPO_RECORD_SHOW is the drawing program; its last
// arguments are Prometheus' address, and beginning and end in seconds since 1970.
func TestRecording(t *testing.T) {
	prometheus, show := os.Getenv("NVTOPO_RECORD_PROMETHEUS"), os.Getenv("NVTOPO_RECORD_SHOW")
	if prometheus == "" || show == "" {
		t.Skip("NVTOPO_RECORD_PROMETHEUS and NVTOPO_RECORD_SHOW are not set: make dashboard-pictures sets them")
	}
	length := setting(t, "NVTOPO_RECORD_DURATION", 10*time.Minute, time.ParseDuration)
	binary, log := testkit.OwnProgram(t, "nvtopo-scheduler"), testkit.Log()
	w := newTestEnv(t, defaultSeed, defaultNodes, log)
	w.startSchedulers(t, binary, log)
	server := httptest.NewServer(w.exposed())
	t.Cleanup(server.Close)
	address := startPrometheus(t, prometheus, server.Listener.Addr().String(), w)

	controller := w.run(w.tendGangs)
	begun := time.Now()
	w.churn(w.ctx, slowPhase(length, len(w.boxes), w.gpus()))
	pause(w.ctx, scrapeAfter)
	controller.stop()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", show+` "$@"`, "show", address, seconds(begun), seconds(time.Now()))
	cmd.Dir = testkit.Repository()
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	w.verdict(t, "")
}

// seconds returns seconds since 1970.
func seconds(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// slowPhase is a phase in which no scheduler dies, slowed down.
func slowPhase(length time.Duration, nodes, gpus int) *phase {
	ph := newPlan(defaultSeed, length/slower*5/2, nodes, gpus).Phases[1] // the latter two fifths
	ph.Length *= slower
	for i := range ph.Ops {
		ph.Ops[i].At *= slower
		ph.Ops[i].Lag *= slower / 4
	}
	return &ph
}

// exposed serves the metrics of all programs over plain HTTP: those of the schedulers unchanged, and
// those of exporters and agents, which here are parts of one process, each at a path of its own.
func (e *testEnv) exposed() http.Handler {
	mux := http.NewServeMux()
	for _, r := range e.schedulers {
		mux.HandleFunc("GET /scheduler/"+r.name, func(rw http.ResponseWriter, req *http.Request) {
			body, err := r.get(req.Context(), "/metrics")
			if err != nil {
				http.Error(rw, err.Error(), http.StatusBadGateway)
				return
			}
			_, _ = rw.Write(body) // the scraper disconnected
		})
	}
	for _, b := range e.boxes {
		mux.Handle("GET /exporter/"+b.name, promhttp.HandlerFor(&b.published, promhttp.HandlerOpts{}))
		mux.Handle("GET /agent/"+b.name, promhttp.HandlerFor(&b.compared, promhttp.HandlerOpts{}))
		mux.Handle("GET /load/"+b.name, promhttp.HandlerFor(newLoad(b), promhttp.HandlerOpts{}))
	}
	return mux
}

// prometheusConfig makes Prometheus scrape the paths of exposed, with the labels that the shipped
// ServiceMonitor sets.
func (e *testEnv) prometheusConfig(address string) ([]byte, error) {
	type static struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	var targets []static
	add := func(path string, labels map[string]string) {
		labels["__metrics_path__"] = path
		targets = append(targets, static{[]string{address}, labels})
	}
	for _, r := range e.schedulers {
		add("/scheduler/"+r.name, map[string]string{"job": "nvtopo-scheduler", "instance": r.name})
	}
	for _, b := range e.boxes {
		for _, job := range []string{"exporter", "agent"} {
			add("/"+job+"/"+b.name, map[string]string{"job": "nvtopo-" + job, "instance": b.name, "node": b.name})
		}
		add("/load/"+b.name, map[string]string{"job": "load", "instance": b.name})
	}
	return yaml.Marshal(map[string]any{
		"global":     map[string]any{"scrape_interval": scrapeInterval, "evaluation_interval": scrapeInterval},
		"rule_files": []string{"rules.yaml"},
		// honor_labels keeps dcgm-exporter's names of a pod, as docs/monitoring.md describes.
		"scrape_configs": []any{map[string]any{"job_name": "nvtopo", "honor_labels": true, "static_configs": targets}},
	})
}

// startPrometheus starts Prometheus with the shipped rules, and returns its address when it is ready.
func startPrometheus(t *testing.T, program, scraped string, w *testEnv) string {
	t.Helper()
	dir := t.TempDir()
	config, err := w.prometheusConfig(scraped)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := shippedRules()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"prometheus.yml": config, "rules.yaml": rules} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	port, err := devcluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = testkit.Log(), testkit.Log()
	if err := cmd.Start(); err != nil {
		t.Fatalf("start Prometheus: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
			t.Errorf("stop Prometheus: %v", err)
		}
	})
	testkit.Eventually(t, patience, "Prometheus is ready", func(ctx context.Context) (bool, string) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/-/ready", http.NoBody)
		if err != nil {
			return false, err.Error()
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, err.Error()
		}
		return resp.StatusCode == http.StatusOK, errors.Join(errors.New(resp.Status), resp.Body.Close()).Error()
	})
	return "http://" + address
}

// shippedRules returns the alerts and recording rules of manifests/alerts as a rule file.
func shippedRules() ([]byte, error) {
	text, err := manifests.Alerts.ReadFile("alerts/placement.yaml")
	if err != nil {
		return nil, err
	}
	var rule struct {
		Spec map[string]any `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &rule); err != nil {
		return nil, err
	}
	return yaml.Marshal(rule.Spec)
}
