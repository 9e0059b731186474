# A tool server on standard input and output that misbehaves as its first argument says.
mode=$1
schema='{"type":"object","properties":{}}'

answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }

# tools NAME..: the list of these tools.
tools() {
    local list= name
    for name; do list+="${list:+,}{\"name\":\"$name\",\"inputSchema\":$schema}"; done
    printf '[%s]' "$list"
}

list() {
    local long
    printf -v long 'n%.0s' {1..80}
    case $mode in
    unusable)
        printf '{"tools":[%s,' '{"name":"bad","inputSchema":{"type":"objekt"}}'
        tools good good a.b a/b "${long}1" "${long}2" | tail -c +2
        printf '}'
        ;;
    endless) printf '{"tools":%s,"nextCursor":"%s"}' "$(tools "t$id")" "$id" ;;
    *) printf '{"tools":%s}' "$(tools call)" ;;
    esac
}

flood() { head -c 20000000 /dev/zero | tr '\0' y; }

call() {
    [[ $1 =~ \"name\":\"([^\"]*)\" ]]
    local text='{"content":[{"type":"text","text":"%s"}]}'
    case $mode in
    large-first)
        printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"' "$id"
        flood
        printf '"}]}}\n'
        ;;
    large-last)
        printf '{"result":{"content":[{"type":"text","text":"'
        flood
        printf '\\",\\"id\\":0"}]},"jsonrpc":"2.0","id":%s}\n' "$id"
        ;;
    inherited)
        [[ -e /dev/fd/$2 ]] && seen=open || seen=closed
        answer "$(printf "$text" "$seen")"
        ;;
    *) answer "$(printf "$text" "${BASH_REMATCH[1]}")" ;;
    esac
}

[[ $mode == children ]] && { sleep 4712.1 & }
while IFS= read -r line; do
    [[ $line =~ \"id\":([0-9]+) ]] || continue
    id=${BASH_REMATCH[1]}
    case $line in
    *'"method":"initialize"'*)
        info='"capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}'
        answer "{\"protocolVersion\":\"2025-06-18\",$info}"
        ;;
    *'"method":"tools/list"'*) [[ $mode == silent ]] || answer "$(list)" ;;
    *'"method":"tools/call"'*) call "$line" "$2" ;;
    *) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id" ;;
    esac
done
