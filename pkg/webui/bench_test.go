// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"io"
	"math/rand/v2"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
)

// BenchmarkASecondWithTwentyViewers measures one second of a server: 1000 nodes of 8 GPUs with some 3000
// pods, of which 50 change, and 20 viewers of the stream. The changes and the viewers' reads are in the
// same process, and so in the figures.
func BenchmarkASecondWithTwentyViewers(b *testing.B) {
	const changes, viewers = 50, 20
	r := rand.New(rand.NewPCG(1, 2))
	c := viewtest.New()
	for i := range 1000 {
		name := "n" + strconv.Itoa(i)
		if err := c.AddNode(name, "dgx-h100", "topology.kubernetes.io/rack", "r"+strconv.Itoa(i/16)); err != nil {
			b.Fatal(err)
		}
		c.Nodes[i].ResourceVersion, c.Topologies[i].ResourceVersion = "1", "1"
		c.Leases[i].Spec.LeaseDurationSeconds = new(int32(1 << 20)) // nothing goes stale meanwhile
		at := r.Perm(8)
		for j := range r.IntN(7) {
			c.AddPod(name+"-"+strconv.Itoa(j), name, 1, at[j]).ResourceVersion = "1"
		}
	}
	s := newTestEnv(b, c, nil)
	for range viewers {
		answer, err := s.http.Client().Get(s.http.URL + "/api/v1/stream") //nolint:noctx // it ends with the server
		if err != nil {
			b.Fatal(err)
		}
		defer answer.Body.Close()
		go io.Copy(io.Discard, answer.Body)
	}
	pods := s.kube.CoreV1().Pods("default")
	last := s.server.states.current()
	before := cpuTime(b)
	b.ResetTimer()
	for n := 0; b.Loop(); n++ {
		for half := range 2 {
			for i := range changes / 2 {
				p := c.Pods[(n*changes+half*changes/2+i)%len(c.Pods)].DeepCopy()
				p.ResourceVersion = strconv.Itoa(2 + n)
				p.Status.Phase = []v1.PodPhase{v1.PodRunning, v1.PodFailed}[(n+i)%2]
				if _, err := pods.Update(b.Context(), p, metav1.UpdateOptions{}); err != nil {
					b.Fatal(err)
				}
			}
			for s.clock.Step(gap); s.server.states.current() == last; {
				time.Sleep(time.Millisecond)
				s.clock.Step(time.Millisecond)
			}
			last = s.server.states.current()
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(cpuTime(b)-before)/1e6/float64(b.N), "CPU-ms/op")
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	b.ReportMetric(float64(memory.HeapAlloc)/1e6, "MB-heap")
}

// cpuTime returns the process's CPU time.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
