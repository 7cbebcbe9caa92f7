// Drift lets three delivery tools hold the same set of objects, each in a namespace of its own, while somebody changes and deletes
// objects all the time: in the server, and in the members behind it, whose contexts are in the kubeconfig. Most of that must have
// taken effect, and after each drift in the server its tool must have written. When that ends they must come to rest: all as it should
// be, everywhere, healthy, and ten more rounds write nothing.
//
//	drift SECONDS
//
// A line that begins with `result: ` says in the end how often.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hanse.test/clients/check"
)

//go:embed set.yaml
var set string

const (
	every = 3 * time.Second
	// A drift of each sort comes round every few minutes.
	driftEvery = 7 * time.Second
	// A tool that has not written for so long since a drift in the hub has not seen it.
	patience = time.Minute
	// How often all are asked in the end, and write nothing.
	silentRounds = 10
)

// drift is what somebody does behind the tools' backs; without a patch it is deleted.
type drift struct{ kind, name, patch string }

var inHub = []drift{
	{"Deployment", "web", `{"spec":{"replicas":5}}`},
	{"ConfigMap", "settings", `{"data":{"course":"south"}}`},
	{"Service", "web", ""},
	{"StatefulSet", "db", `{"spec":{"replicas":1}}`},
	{"RoleBinding", "web", `{"subjects":[]}`},
	{"Deployment", "web", `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"example.com/web:evil"}]}}}}`},
	{"ConfigMap", "settings", ""},
	{"CronJob", "report", `{"spec":{"schedule":"* * * * *","suspend":true}}`},
	{"Secret", "login", `{"data":{"password":"Z3Vlc3NlZA=="}}`},
	{"Deployment", "web", ""},
	{"NetworkPolicy", "web", `{"spec":{"ingress":[]}}`},
	{"PodDisruptionBudget", "web", `{"spec":{"maxUnavailable":2}}`},
	{"StatefulSet", "db", ""},
}

var inMembers = []drift{
	{"Deployment", "web", `{"spec":{"replicas":7}}`},
	{"ConfigMap", "settings", `{"data":{"speed":"99"}}`},
	{"Service", "web", ""},
	{"StatefulSet", "db", `{"spec":{"replicas":3}}`},
	{"Secret", "login", ""},
	{"Deployment", "web", ""},
	{"NetworkPolicy", "web", `{"spec":{"policyTypes":["Egress"]}}`},
}

// tool is a process that makes a round for each line that it gets.
type tool struct {
	name, namespace string
	input           io.Writer
	output          *bufio.Scanner
	rounds, wrote   int
	// Of what drifted in the hub, how much it wrote after.
	answered tally
	// What drifted in the hub, and since when, until the tool writes.
	owes  string
	since time.Time
}

// tally counts what was tried, and what of it came to something.
type tally struct{ tried, took int }

func (t *tally) add(took bool) {
	t.tried++
	if took {
		t.took++
	}
}

func (t tally) String() string { return fmt.Sprintf("%d of %d", t.took, t.tried) }

// isMost leaves room for what somebody meets while it is being deleted or made again.
func (t tally) isMost() bool { return t.took > 0 && 4*t.took >= 3*t.tried }

type world struct {
	hub     client.Client
	members map[string]client.Client
	tools   []*tool
	// Drifts that took effect: one in the members did if it did in any, for an object need not be in all.
	hubDrifts, memberDrifts tally
	drifted                 time.Duration
	// How the end was.
	rest string
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: drift SECONDS")
		os.Exit(2)
	}
	seconds, err := strconv.Atoi(os.Args[1])
	must(err)
	w := connect()
	stop := w.start()
	defer stop()
	err = w.play(time.Duration(seconds) * time.Second)
	fmt.Printf("result: %s\n", w.result())
	if err != nil {
		fmt.Printf("FAILED %v\n0 passed, 1 failed\n", err)
		stop()
		os.Exit(1)
	}
	fmt.Println("ok three tools converge under drift, and then write nothing\n1 passed, 0 failed")
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// result of all, on a line.
func (w *world) result() string {
	var answers []string
	for _, tool := range w.tools {
		answers = append(answers, fmt.Sprintf("%s %s times (%d of its %d rounds wrote)", tool.name, tool.answered, tool.wrote, tool.rounds))
	}
	return fmt.Sprintf("in %s %s drifts took effect in the hub and %s in members; after those in the hub wrote %s; %s",
		w.drifted, w.hubDrifts, w.memberDrifts, strings.Join(answers, ", "), w.rest)
}

// connect: a context of the kubeconfig is a member if the server has a node by its name.
func connect() *world {
	known, err := clientcmd.LoadFromFile(check.Kubeconfig())
	must(err)
	at := func(name string) client.Client {
		config, err := clientcmd.NewNonInteractiveClientConfig(*known, name, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
		must(err)
		config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
		made, err := client.New(config, client.Options{})
		must(err)
		return made
	}
	w := &world{hub: at(known.CurrentContext), members: map[string]client.Client{}, rest: "it did not come to rest"}
	var nodes corev1.NodeList
	must(w.hub.List(context.Background(), &nodes))
	for _, node := range nodes.Items {
		if _, ok := known.Contexts[node.Name]; ok {
			w.members[node.Name] = at(node.Name)
		}
	}
	if len(w.members) == 0 {
		panic("the hub has no node that is a context of the kubeconfig")
	}
	return w
}

// start makes the namespaces and starts the tools; they are built beside this program.
func (w *world) start() func() {
	own, err := os.Executable()
	must(err)
	file, err := os.CreateTemp("", "set-*.yaml")
	must(err)
	_, err = file.WriteString(set)
	must(err)
	ctx, stop := context.WithCancel(context.Background())
	for _, command := range [][]string{{"helm", "keep", "helm"}, {"flux", "keep", "flux"}, {"argo", "argo", "keep"}} {
		name := check.Unique("drift-" + command[0])
		must(w.hub.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
		process := exec.CommandContext(ctx, filepath.Join(filepath.Dir(own), command[1]), command[2], name, file.Name())
		process.Stderr = os.Stderr
		input, err := process.StdinPipe()
		must(err)
		output, err := process.StdoutPipe()
		must(err)
		must(process.Start())
		w.tools = append(w.tools, &tool{name: command[0], namespace: name, input: input, output: bufio.NewScanner(output)})
	}
	return func() {
		stop()
		_ = os.Remove(file.Name())
		for _, tool := range w.tools {
			_ = w.hub.Delete(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tool.namespace}})
		}
	}
}

// round lets all tools make one, at the same time.
func (w *world) round() (map[string]check.Round, error) {
	said := map[string]check.Round{}
	for _, tool := range w.tools {
		if _, err := fmt.Fprintln(tool.input, "go on"); err != nil {
			return nil, fmt.Errorf("%s: %w", tool.name, err)
		}
	}
	for _, tool := range w.tools {
		var done check.Round
		if !tool.output.Scan() {
			return nil, fmt.Errorf("%s has ended", tool.name)
		}
		if err := json.Unmarshal(tool.output.Bytes(), &done); err != nil {
			return nil, fmt.Errorf("%s said %q", tool.name, tool.output.Text())
		}
		tool.rounds++
		if len(done.Written) > 0 {
			tool.wrote++
			if tool.owes != "" {
				tool.answered.took++
				tool.owes = ""
			}
		}
		if tool.owes != "" && time.Since(tool.since) > patience {
			return nil, fmt.Errorf("%s has written nothing for %s after %s drifted in the hub: %+v", tool.name, patience, tool.owes, done)
		}
		said[tool.name] = done
	}
	return said, nil
}

func (w *world) play(length time.Duration) error {
	if len(w.members) == 0 {
		return fmt.Errorf("the kubeconfig has no members")
	}
	if err := w.untilRest(); err != nil {
		return fmt.Errorf("at first: %w", err)
	}
	drifts, began := 0, time.Now()
	next := began
	for time.Since(began) < length {
		// The next one waits until all have seen the last, so that each can be told from the others.
		if time.Now().After(next) && !w.isOwed() {
			if err := w.meddle(drifts); err != nil {
				return err
			}
			drifts, next = drifts+1, next.Add(driftEvery)
		}
		if _, err := w.round(); err != nil {
			return err
		}
		w.drifted = time.Since(began).Round(time.Second)
		time.Sleep(every)
	}
	if err := w.untilRest(); err != nil {
		return fmt.Errorf("in the end: %w", err)
	}
	if err := w.judge(drifts, length); err != nil {
		return err
	}
	return w.silent()
}

func (w *world) isOwed() bool {
	for _, tool := range w.tools {
		if tool.owes != "" {
			return true
		}
	}
	return false
}

// judge: only if things drifted all the time, and tools wrote because of it, does their rest mean anything.
func (w *world) judge(drifts int, length time.Duration) error {
	if time.Duration(2*drifts)*driftEvery < length {
		return fmt.Errorf("only %d drifts in each namespace in %s", drifts, w.drifted)
	}
	if !w.hubDrifts.isMost() {
		return fmt.Errorf("only %s drifts took effect in the hub", w.hubDrifts)
	}
	if !w.memberDrifts.isMost() {
		return fmt.Errorf("only %s drifts took effect in members", w.memberDrifts)
	}
	for _, tool := range w.tools {
		if tool.answered.took == 0 || tool.answered.took < tool.answered.tried {
			return fmt.Errorf("%s wrote after %s drifts in the hub", tool.name, tool.answered)
		}
	}
	return nil
}

// meddle makes the next drift in each namespace: two times in the hub, then once in the members.
func (w *world) meddle(number int) error {
	for _, tool := range w.tools {
		if number%3 != 2 {
			drift := inHub[(number-number/3)%len(inHub)]
			took, err := change(w.hub, tool.namespace, drift)
			if err != nil {
				return fmt.Errorf("meddle in the hub: %w", err)
			}
			w.hubDrifts.add(took)
			if took {
				tool.answered.tried++
				tool.owes, tool.since = drift.kind+" "+drift.name, time.Now()
			}
			continue
		}
		tookAnywhere := false
		for name, member := range w.members {
			took, err := change(member, tool.namespace, inMembers[number/3%len(inMembers)])
			if err != nil {
				return fmt.Errorf("meddle in %s: %w", name, err)
			}
			tookAnywhere = tookAnywhere || took
		}
		w.memberDrifts.add(tookAnywhere)
	}
	return nil
}

// change says whether it changed anything. What is not there, because it runs elsewhere or was deleted a moment ago, cannot be
// changed, and what is already as the drift has it is not.
func change(server client.Client, namespace string, drift drift) (bool, error) {
	before, err := find(namespace, drift)
	if err != nil {
		return false, err
	}
	err = server.Get(context.Background(), client.ObjectKeyFromObject(before), before)
	if apierrors.IsNotFound(err) || err == nil && before.GetDeletionTimestamp() != nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	after := before.DeepCopy()
	if drift.patch == "" {
		err = server.Delete(context.Background(), after)
	} else {
		err = server.Patch(context.Background(), after, client.RawPatch(types.MergePatchType, []byte(drift.patch)), client.FieldOwner("somebody"))
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return drift.patch == "" || !reflect.DeepEqual(content(before), content(after)), nil
}

// find what drifts in the set.
func find(namespace string, drift drift) (*unstructured.Unstructured, error) {
	for _, object := range wanted(namespace) {
		if object.GetKind() == drift.kind && object.GetName() == drift.name {
			return object, nil
		}
	}
	return nil, fmt.Errorf("no %s %s in the set", drift.kind, drift.name)
}

// content is all but what the server adds by itself.
func content(object *unstructured.Unstructured) map[string]any {
	fields := object.DeepCopy().Object
	for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
		unstructured.RemoveNestedField(fields, "metadata", field)
	}
	delete(fields, "status")
	return fields
}

func wanted(namespace string) []*unstructured.Unstructured {
	var objects []*unstructured.Unstructured
	documents := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(set), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(object); err == io.EOF {
			return objects
		} else if err != nil {
			panic(err)
		}
		object.SetNamespace(namespace)
		objects = append(objects, object)
	}
}

// untilRest: a round in which no tool writes and all is healthy, and all is as wanted in the hub and where it runs.
func (w *world) untilRest() error {
	began, last := time.Now(), ""
	for {
		missing := ""
		said, err := w.round()
		if err != nil {
			return err
		}
		for name, done := range said {
			if len(done.Written) > 0 || done.Missing != "" || done.Failure != "" {
				missing = fmt.Sprintf("%s: %+v", name, done)
			}
		}
		if missing == "" {
			missing = w.differs()
		}
		if missing == "" {
			return nil
		}
		if missing != last {
			fmt.Printf("waiting: %s\n", missing)
			last = missing
		}
		if time.Since(began) > 2*time.Minute {
			return fmt.Errorf("no rest: %s", missing)
		}
		time.Sleep(time.Second)
	}
}

// differs names an object that is not as the set has it. RBAC stays in the hub.
func (w *world) differs() string {
	for _, tool := range w.tools {
		for _, object := range wanted(tool.namespace) {
			places := map[string]client.Client{"the hub": w.hub}
			copies, travels := 0, object.GroupVersionKind().Group != "rbac.authorization.k8s.io"
			for name, member := range w.members {
				if travels {
					places[name] = member
				}
			}
			for place, server := range places {
				live := &unstructured.Unstructured{}
				live.SetGroupVersionKind(object.GroupVersionKind())
				err := server.Get(context.Background(), client.ObjectKeyFromObject(object), live)
				if apierrors.IsNotFound(err) && place != "the hub" {
					continue
				}
				if err != nil {
					return fmt.Sprintf("%s in %s: %v", object.GetKind(), place, err)
				}
				if place != "the hub" {
					copies++
				}
				if !holds(live.Object, object.Object) {
					return fmt.Sprintf("%s %s of %s in %s is not as wanted", object.GetKind(), object.GetName(), tool.name, place)
				}
			}
			if copies == 0 && travels && len(w.members) > 0 {
				return fmt.Sprintf("%s %s of %s is in no member", object.GetKind(), object.GetName(), tool.name)
			}
		}
	}
	return ""
}

// holds: all that is wanted is there.
func holds(live, wanted any) bool {
	switch wanted := wanted.(type) {
	case map[string]any:
		live, ok := live.(map[string]any)
		for key, value := range wanted {
			ok = ok && holds(live[key], value)
		}
		return ok
	case []any:
		live, ok := live.([]any)
		ok = ok && len(live) == len(wanted)
		for i := range wanted {
			ok = ok && holds(live[i], wanted[i])
		}
		return ok
	default:
		return fmt.Sprint(live) == fmt.Sprint(wanted)
	}
}

// silent makes more rounds, in which nobody writes anything: not in the hub, and not in the members.
func (w *world) silent() error {
	began := time.Now()
	before, err := w.versions()
	if err != nil {
		return err
	}
	for range silentRounds {
		time.Sleep(every)
		said, err := w.round()
		if err != nil {
			return err
		}
		for name, done := range said {
			if len(done.Written) > 0 || done.Failure != "" {
				return fmt.Errorf("%s goes on: %+v", name, done)
			}
		}
	}
	after, err := w.versions()
	if err != nil {
		return err
	}
	for what, version := range after {
		if before[what] != version {
			return fmt.Errorf("%s was written, and nothing had changed", what)
		}
	}
	if len(after) != len(before) {
		return fmt.Errorf("%d objects, not %d", len(after), len(before))
	}
	w.rest = fmt.Sprintf("then %d rounds wrote nothing, and %d objects in the hub and %d members stayed as they were for %s",
		silentRounds, len(after), len(w.members), time.Since(began).Round(time.Second))
	return nil
}

// versions of all objects of the kinds in the set, and of the secrets that helm keeps.
func (w *world) versions() (map[string]string, error) {
	found := map[string]string{}
	places := map[string]client.Client{"the hub": w.hub}
	for name, member := range w.members {
		places[name] = member
	}
	for place, server := range places {
		for _, tool := range w.tools {
			for _, object := range wanted(tool.namespace) {
				list := &unstructured.UnstructuredList{}
				list.SetGroupVersionKind(object.GroupVersionKind())
				if err := server.List(context.Background(), list, client.InNamespace(tool.namespace)); err != nil {
					return nil, err
				}
				for _, item := range list.Items {
					found[place+": "+item.GetKind()+" "+item.GetNamespace()+"/"+item.GetName()] = item.GetResourceVersion()
				}
			}
		}
	}
	return found, nil
}
