// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"bytes"
	"strings"
	"testing"
)

// TestAnonymize: Anonymize leaves no name. Each name, address and value of a label in the sample
// has "acme" or "10.9." in it.
func TestAnonymize(t *testing.T) {
	s := &Snapshot{Header: Header{Kind: SnapshotKind, Version: SnapshotVersion, Scheduler: "acme-scheduler", Config: "c"}}
	for _, text := range []string{
		`{"apiVersion":"v1","kind":"Node","metadata":{"name":"acme-n1","labels":{"type":"acme-type","status":"acme-status","kubernetes.io/hostname":"acme-n1"},"annotations":{"alpha.kubernetes.io/provided-node-ip":"10.9.0.1","csi.volume.kubernetes.io/nodeid":"{\"d\":\"acme-id\"}"}},
			"spec":{"providerID":"cloud://acme/1","podCIDR":"10.9.1.0/24","taints":[{"key":"team","value":"acme-taint","effect":"NoSchedule"}]},
			"status":{"addresses":[{"type":"InternalIP","address":"10.9.0.1"},{"type":"Hostname","address":"acme-n1.example"}],"images":[{"names":["acme/image:1"],"sizeBytes":1}],
			"conditions":[{"type":"Ready","status":"True","message":"acme is ready"}],"volumesInUse":["csi^acme-v"],"allocatable":{"cpu":"1"}}}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"acme","name":"acme-p","labels":{"reason":"acme-reason","nvtopo.dev/phase":"static"}},
			"spec":{"nodeSelector":{"kind":"acme-kind"},"hostname":"acme-h","tolerations":[{"key":"team","value":"acme-other","operator":"Equal"}],
			"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"zone","labelSelector":{"matchLabels":{"type":"acme-match"},"matchExpressions":[{"key":"a","operator":"In","values":["acme-in"]}]}}]}},
			"containers":[{"name":"c","image":"acme/other"}]},
			"status":{"phase":"Pending","nominatedNodeName":"acme-n1","podIP":"10.9.1.7","hostIP":"10.9.0.1","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"acme is full"}]}}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"acme","name":"acme-q"},"spec":{"containers":[]},"status":{"nominatedNodeName":"acme-gone"}}`,
		`{"apiVersion":"v1","kind":"Service","metadata":{"namespace":"acme","name":"acme-s"},"spec":{"clusterIP":"10.9.2.1","clusterIPs":["10.9.2.1"],"selector":{"status":"acme-selected"}},"status":{"loadBalancer":{"ingress":[{"ip":"10.9.3.1"}]}}}`,
		`{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"acme-v"},"spec":{"nfs":{"server":"10.9.4.1","path":"/acme"},"claimRef":{"namespace":"acme","name":"acme-c"}}}`,
		`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"namespace":"acme","name":"acme-c"},"spec":{"volumeName":"acme-v"}}`,
		`{"apiVersion":"storage.k8s.io/v1","kind":"CSINode","metadata":{"name":"acme-n1"},"spec":{"drivers":[{"name":"d","nodeID":"acme-id"}]}}`,
		`{"apiVersion":"topology.nvtopo.dev/v1alpha1","kind":"NodeGPUTopology","metadata":{"name":"acme-n1"},"spec":{"gpus":[{"id":"GPU-1"}]},
			"status":{"allocations":[{"podUID":"u","namespace":"acme-left","pod":"acme-ended","container":"c","gpus":["GPU-1"],"state":"static"}],"conditions":[{"type":"Ready","status":"True","message":"acme is up"}]}}`,
	} {
		o, err := readObject([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		s.Objects = append(s.Objects, *o)
	}
	if err := s.Anonymize(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := s.Write(&out); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		for _, name := range []string{"acme", "10.9."} {
			if i := strings.Index(line, name); i >= 0 {
				t.Errorf("%q is left: %s", line[i:min(len(line), i+20)], line)
			}
		}
	}
	for _, kept := range []string{
		`"type":"PodScheduled"`, `"reason":"Unschedulable"`, `"phase":"Pending"`, `"effect":"NoSchedule"`, `"operator":"In"`, `"gpus":["GPU-1"]`, `"podUID":"u"`, `"state":"static"`,
		`"nominatedNodeName":"node-1"`, `"nominatedNodeName":"node-0"`, `"claimRef":{"name":"persistentvolumeclaim-0","namespace":"namespace-0"}`,
	} {
		if !strings.Contains(out.String(), kept) {
			t.Errorf("%s is missing in\n%s", kept, out.String())
		}
	}
}
