// Command cel answers what Kubernetes makes of CEL expressions: one JSON object per line in, one per line out.
//
// A question has the expression, the OpenAPI schema and the value of `self` and `oldSelf`, an untyped value for `data`,
// and the cost limit. The answer has the issues of compiling it, or the value or error with the cost, and the estimate.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

type question struct {
	Expr    string          `json:"expr"`
	Schema  json.RawMessage `json:"schema"`
	Self    json.RawMessage `json:"self"`
	OldSelf json.RawMessage `json:"oldSelf"`
	Data    json.RawMessage `json:"data"`
	Limit   uint64          `json:"limit"`
}

type answer struct {
	Issues   string `json:"issues,omitempty"`
	Program  string `json:"program,omitempty"`
	Type     string `json:"type,omitempty"`
	Value    string `json:"value,omitempty"`
	Error    string `json:"error,omitempty"`
	Cost     uint64 `json:"cost"`
	Min      uint64 `json:"min"`
	Max      uint64 `json:"max"`
	UsesOld  bool   `json:"usesOld"`
	Internal string `json:"internal,omitempty"`
}

func main() {
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := bufio.NewWriter(os.Stdout)
	defer output.Flush()
	envs := map[string]*prepared{}
	for {
		line, err := input.ReadString('\n')
		if line == "" && err != nil {
			return
		}
		var q question
		if err := json.Unmarshal([]byte(line), &q); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		encoded, err := json.Marshal(reply(q, envs))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		output.Write(encoded)
		output.WriteByte('\n')
		output.Flush()
	}
}

type prepared struct {
	env    *cel.Env
	schema *spec.Schema
	decl   *apiservercel.DeclType
}

func prepare(raw json.RawMessage) (*prepared, error) {
	schema := &spec.Schema{}
	if len(raw) == 0 {
		raw = json.RawMessage(`{"type":"object"}`)
	}
	if err := json.Unmarshal(raw, schema); err != nil {
		return nil, err
	}
	decl := openapi.SchemaDeclType(schema, false).MaybeAssignTypeName("selfType")
	set, err := environment.MustBaseEnvSet(version.MajorMinor(1, 36)).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{
			cel.Variable("self", decl.CelType()),
			cel.Variable("oldSelf", decl.CelType()),
			cel.Variable("data", cel.DynType),
		},
		DeclTypes: []*apiservercel.DeclType{decl},
	})
	if err != nil {
		return nil, err
	}
	return &prepared{env: set.StoredExpressionsEnv(), schema: schema, decl: decl}, nil
}

func reply(q question, envs map[string]*prepared) (a answer) {
	defer func() {
		if r := recover(); r != nil {
			a.Internal = fmt.Sprint(r)
		}
	}()
	p, found := envs[string(q.Schema)]
	if !found {
		var err error
		if p, err = prepare(q.Schema); err != nil {
			a.Internal = err.Error()
			return a
		}
		envs[string(q.Schema)] = p
	}
	ast, issues := p.env.Compile(q.Expr)
	if issues != nil {
		a.Issues = issues.String()
		return a
	}
	a.Type = ast.OutputType().String()
	for _, reference := range ast.NativeRep().ReferenceMap() {
		if reference.Name == "oldSelf" {
			a.UsesOld = true
		}
	}
	estimator := &library.CostEstimator{SizeEstimator: &sizes{root: p.decl}}
	program, err := p.env.Program(ast, cel.CostLimit(q.Limit), cel.CostTracking(estimator))
	if err != nil {
		a.Program = err.Error()
		return a
	}
	estimate, err := p.env.EstimateCost(ast, estimator)
	if err != nil {
		a.Internal = err.Error()
		return a
	}
	a.Min, a.Max = estimate.Min, estimate.Max
	vars := map[string]any{}
	for name, raw := range map[string]json.RawMessage{"self": q.Self, "oldSelf": q.OldSelf} {
		if len(raw) > 0 {
			vars[name] = common.UnstructuredToVal(decode(raw), &openapi.Schema{Schema: p.schema})
		}
	}
	if len(q.Data) > 0 {
		vars["data"] = decode(q.Data)
	}
	value, details, err := program.Eval(vars)
	if details != nil && details.ActualCost() != nil {
		a.Cost = *details.ActualCost()
	}
	if err != nil {
		a.Error = err.Error()
		return a
	}
	a.Value = render(value)
	return a
}

// decode reads JSON as the API server does: whole numbers are int64.
func decode(raw json.RawMessage) any {
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		panic(err)
	}
	return numbers(value)
}

func numbers(value any) any {
	switch v := value.(type) {
	case json.Number:
		if i, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return i
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	}
	return value
}

type sizes struct{ root *apiservercel.DeclType }

// EstimateSize follows a path through the schema, as the estimator of custom resources does.
func (s *sizes) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	if len(element.Path()) == 0 {
		return nil
	}
	current := s.root
	for _, name := range element.Path()[1:] {
		switch name {
		case "@items", "@values":
			if current.ElemType == nil {
				return nil
			}
			current = current.ElemType
		case "@keys":
			if current.KeyType == nil {
				return nil
			}
			current = current.KeyType
		default:
			field, ok := current.Fields[name]
			if !ok || field.Type == nil {
				return nil
			}
			current = field.Type
		}
	}
	return &checker.SizeEstimate{Min: 0, Max: uint64(current.MaxElements)}
}

func (*sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// render writes a value so that two implementations can be compared.
func render(value ref.Val) string {
	switch v := value.(type) {
	case types.Null:
		return "null"
	case types.Bool:
		return strconv.FormatBool(bool(v))
	case types.Int:
		return strconv.FormatInt(int64(v), 10)
	case types.Uint:
		return strconv.FormatUint(uint64(v), 10) + "u"
	case types.Double:
		return "double " + strconv.FormatFloat(float64(v), 'g', -1, 64)
	case types.String:
		return text("s", string(v))
	case types.Bytes:
		return text("b", string(v))
	case types.Duration:
		return fmt.Sprintf("duration %d", int64(v.Duration))
	case types.Timestamp:
		return "timestamp " + v.Time.Format("2006-01-02T15:04:05.999999999Z07:00")
	case *types.Optional:
		if !v.HasValue() {
			return "none"
		}
		return "some(" + render(v.GetValue()) + ")"
	case apiservercel.IP:
		return "ip " + v.Addr.String()
	case apiservercel.CIDR:
		return "cidr " + v.Prefix.String()
	case apiservercel.URL:
		return "url " + v.URL.String()
	case apiservercel.Quantity:
		return "quantity " + v.Quantity.String()
	case *apiservercel.Quantity:
		return "quantity " + v.Quantity.String()
	case apiservercel.Semver:
		return "semver " + v.Version.String()
	case apiservercel.Format:
		return "format " + v.Name
	case *types.Type:
		return "type " + v.TypeName()
	case traits.Lister:
		parts := []string{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			parts = append(parts, render(it.Next()))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case traits.Mapper:
		parts := []string{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			found, _ := v.Find(key)
			parts = append(parts, render(key)+": "+render(found))
		}
		sort.Strings(parts)
		return "{" + strings.Join(parts, ", ") + "}"
	case *types.Err:
		return "error " + v.Error()
	}
	return fmt.Sprintf("%T", value)
}

func text(kind, value string) string {
	var out strings.Builder
	out.WriteString(kind + `"`)
	for i := 0; i < len(value); i++ {
		if c := value[i]; c >= ' ' && c < 0x7f && c != '"' && c != '\\' {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, `\x%02x`, c)
		}
	}
	return out.String() + `"`
}
