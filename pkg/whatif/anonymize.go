// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/nodelease"
	"github.com/nvtopo/nvtopo/pkg/release"
)

// wellKnown are names that every cluster has, and that configurations name.
var wellKnown = map[string]bool{
	"default": true, "kube-system": true, "kube-public": true, "kube-node-lease": true, release.Namespace: true, "true": true, "false": true, "": true,
}

// constants are the fields whose values are words of the API or of the configuration, whatever
// somebody calls a node or a pod.
var constants = map[string]bool{
	"apiVersion": true, "kind": true, "phase": true, "type": true, "status": true, "reason": true, "operator": true, "effect": true, "key": true,
	"topologyKey": true, "resource": true, "schedulerName": true, "priorityClassName": true, "restartPolicy": true, "uid": true, "podUID": true,
	"whenUnsatisfiable": true, "preemptionPolicy": true, "nodeLabel": true, "resourceVersion": true,
	"class": true, "interconnect": true, "state": true, "scope": true, "level": true,
	"topologyManagerPolicy": true, "cpuManagerPolicy": true, "memoryManagerPolicy": true,
}

// labelFields are the fields of which each key is somebody's word, and no field of the API.
var labelFields = map[string]bool{"labels": true, "matchLabels": true, "nodeSelector": true, "selector": true, "annotations": true}

// unread are the fields that no scheduler reads and that say where a cluster is: addresses, what a
// cloud and a storage system call things. They are left out.
var unread = map[string]bool{
	"addresses": true, "nodeInfo": true, "providerID": true, "podCIDR": true, "podCIDRs": true, "volumesAttached": true, "volumesInUse": true,
	"podIP": true, "podIPs": true, "hostIPs": true, "clusterIP": true, "clusterIPs": true, "externalIPs": true, "externalName": true,
	"loadBalancer": true, "loadBalancerIP": true, "loadBalancerSourceRanges": true, "volumeAttributes": true, "attachmentMetadata": true,
	"parameters": true, "hostAliases": true, "dnsConfig": true,
}

// kept are the parts of the domains of keys whose annotations schedulers read, and whose
// labels have words of the API as values.
var kept = []string{"kubernetes.io", "k8s.io", "nvtopo.dev"}

// placeLabels begin the labels, of those domains, that name places and nodes.
var placeLabels = []string{"topology.kubernetes.io/", "kubernetes.io/hostname", "topology.nvtopo.dev/", "kueue.x-k8s.io/", "scheduling.x-k8s.io/", "batch.kubernetes.io/job-name"}

// Anonymize replaces names by words, each by the same everywhere and in the same order: nodes of
// equal rank keep theirs. What names nobody stays: the configuration, UIDs, devices' ids, keys.
func (s *Snapshot) Anonymize() error {
	documents := make([]map[string]any, len(s.Objects))
	found := names{}
	for i := range s.Objects {
		if err := utiljson.Unmarshal(s.Objects[i].Raw, &documents[i]); err != nil {
			return fmt.Errorf("%s: %w", &s.Objects[i], err)
		}
		found.of(s.Objects[i].Kind, documents[i])
	}
	words := found.words()
	for i, d := range documents {
		words.replaceIn(d)
		raw, err := json.Marshal(d)
		if err != nil {
			return fmt.Errorf("%s: %w", &s.Objects[i], err)
		}
		o, err := readObject(raw)
		if err != nil {
			return err
		}
		s.Objects[i] = *o
	}
	s.Scheduler = ""
	return nil
}

// names are what is to be replaced, by what they are names of.
type names map[string]map[string]bool

func (n names) add(of, name string) {
	if wellKnown[name] {
		return
	}
	if _, err := strconv.ParseInt(name, 10, 64); err == nil {
		return // labels of numbers are compared
	}
	if n[of] == nil {
		n[of] = map[string]bool{}
	}
	n[of][name] = true
}

// of collects what one object names.
func (n names) of(kind *Kind, d map[string]any) {
	meta, _ := d["metadata"].(map[string]any)
	switch kind.Resource {
	case "storageclasses", "csidrivers", "deviceclasses", "priorityclasses", "clustertopologies", "leases", "nodegputopologies", "csinodes":
		// words of the configuration, or a node's name
	default:
		n.add(strings.ToLower(kind.Kind), text(meta, "name"))
	}
	n.add("namespace", text(meta, "namespace"))
	annotations, _ := meta["annotations"].(map[string]any)
	for key := range annotations {
		if !isKept(key) {
			delete(annotations, key) // nobody reads it
		}
	}
	for _, key := range []string{gangrequest.GangKey, gangrequest.NearKey} {
		n.add("gang", text(annotations, key))
	}
	n.within(d)
}

// namedFields are the fields that name what need not be in the snapshot.
var namedFields = map[string]string{
	"image": "image", "claimName": "persistentvolumeclaim", "serviceAccountName": "account", "serviceAccount": "account", "secretName": "secret",
	"hostname": "host", "subdomain": "host", "generateName": "prefix", "volumeHandle": "volume", "message": "message",
	"nodeName": "node", "nominatedNodeName": "node", "nodeID": "host", "pod": "pod", "namespace": "namespace", "volumeName": "persistentvolume",
	"persistentVolumeName": "persistentvolume", "resourceClaimName": "resourceclaim", "hostIP": "address", "server": "host", "path": "path",
}

// within collects what fields of those names have, at any depth, and the values of labels and what is
// compared with them. It leaves out what is not read.
func (n names) within(v any) {
	switch v := v.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(key string, _ any) bool { return unread[key] })
		for key, value := range v {
			if s, ok := value.(string); ok && namedFields[key] != "" {
				n.add(namedFields[key], s)
			}
			if of, ok := value.(map[string]any); ok && labelFields[key] {
				n.ofLabels(key, of)
				continue
			}
			n.within(value)
		}
		n.addValue(text(v, "key"), text(v, "value"))
		for _, value := range texts(v["values"]) {
			n.addValue(text(v, "key"), value)
		}
		n.ofLists(v)
	case []any:
		for _, value := range v {
			n.within(value)
		}
	}
}

// ofLists collects the names of images and owners.
func (n names) ofLists(v map[string]any) {
	if images, ok := v["images"].([]any); ok {
		for _, image := range images {
			if image, ok := image.(map[string]any); ok {
				for _, name := range texts(image["names"]) {
					n.add("image", name)
				}
			}
		}
	}
	if owners, ok := v["ownerReferences"].([]any); ok {
		for _, owner := range owners {
			if owner, ok := owner.(map[string]any); ok {
				n.add("owner", text(owner, "name"))
			}
		}
	}
}

// ofLabels collects the values of labels, or of a selector, which may be one of labels or have some
// in it.
func (n names) ofLabels(field string, labels map[string]any) {
	for key, value := range labels {
		if s, ok := value.(string); !ok {
			n.within(map[string]any{key: value})
		} else if field != "annotations" {
			n.addValue(key, s)
		}
	}
}

// addValue adds the value of a label or taint, unless it is a word of the API.
func (n names) addValue(key, value string) {
	if !isKept(key) || isPlace(key) {
		n.add("value", value)
	}
}

func text(of map[string]any, key string) string { s, _ := of[key].(string); return s }

func texts(v any) (out []string) {
	list, _ := v.([]any)
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func isKept(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	return ok && slices.ContainsFunc(kept, func(d string) bool {
		return domain == d || strings.HasSuffix(domain, "."+d) || strings.HasSuffix(domain, "-"+d)
	})
}

func isPlace(key string) bool {
	return slices.ContainsFunc(placeLabels, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// words are the replacements by name.
type words map[string]string

// words numbers the names of each sort in their order. A name of two sorts is one of the first.
func (n names) words() words {
	out := words{}
	for _, of := range slices.Sorted(maps.Keys(n)) {
		all := slices.Sorted(maps.Keys(n[of]))
		digits := len(strconv.Itoa(len(all)))
		for i, name := range all {
			if _, ok := out[name]; !ok {
				out[name] = fmt.Sprintf("%s-%0*d", of, digits, i)
			}
		}
	}
	return out
}

// replaceIn replaces the names in a document, and in JSON and lists within its annotations.
func (w words) replaceIn(d map[string]any) {
	w.replace(d)
	meta, _ := d["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	for key, value := range annotations {
		if value, ok := value.(string); ok {
			annotations[key] = w.inAnnotation(value)
		}
	}
	for _, prefix := range []string{nodelease.ExporterPrefix, nodelease.AgentPrefix} {
		if node, ok := strings.CutPrefix(text(meta, "name"), prefix); ok && d["kind"] == LeaseKind.Kind && w[node] != "" {
			meta["name"] = prefix + w[node]
		}
	}
}

// replace replaces the names in a value of any depth, and returns it.
func (w words) replace(v any) any {
	switch v := v.(type) {
	case string:
		if word, ok := w[v]; ok {
			return word
		}
	case map[string]any:
		for key, value := range v {
			if labels, ok := value.(map[string]any); ok && labelFields[key] {
				w.inLabels(labels)
			} else if _, word := value.(string); !word || !constants[key] {
				v[key] = w.replace(value)
			}
		}
	case []any:
		for i := range v {
			v[i] = w.replace(v[i])
		}
	}
	return v
}

// inLabels replaces the values of labels, whatever their keys are.
func (w words) inLabels(labels map[string]any) {
	for key, value := range labels {
		labels[key] = w.replace(value)
	}
}

// inAnnotation replaces in JSON, and in the parts of a list.
func (w words) inAnnotation(value string) string {
	var document map[string]any
	if err := utiljson.Unmarshal([]byte(value), &document); err == nil {
		if text, err := json.Marshal(w.replace(document)); err == nil {
			return string(text)
		}
	}
	var out strings.Builder
	for value != "" {
		i := strings.IndexAny(value, ",/ ;=:")
		if i < 0 {
			i = len(value)
		}
		part := value[:i]
		if word, ok := w[part]; ok {
			part = word
		}
		out.WriteString(part)
		if i < len(value) {
			out.WriteByte(value[i])
			i++
		}
		value = value[i:]
	}
	return out.String()
}
