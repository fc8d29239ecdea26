//! The notes of a site as assembler text, the same for every instruction set, and the way from a list of arguments to
//! the site's definition.

/// Defines the function `$fire`, which takes the arguments and is a site of the probe.
///
/// `$guard` is `guarded` (the note names the semaphore) or `plain`; `$size` says how long the description may be; an
/// argument comes as `[name, type, docs, labels]`.
#[doc(hidden)]
#[macro_export]
macro_rules! __fire {
    ($fire:ident $guard:ident $size:ident $provider:tt $name:tt $description:tt [$($arg:tt)*]) => {
        $crate::__fire! {
            @zip [$fire $guard $size $provider $name $description] [] [$($arg)*]
            [
                (A0 a0 narrow0 wide0 length0 size0 has_length0 is_wide0 0 "")
                (A1 a1 narrow1 wide1 length1 size1 has_length1 is_wide1 8 " ")
                (A2 a2 narrow2 wide2 length2 size2 has_length2 is_wide2 16 " ")
                (A3 a3 narrow3 wide3 length3 size3 has_length3 is_wide3 24 " ")
                (A4 a4 narrow4 wide4 length4 size4 has_length4 is_wide4 32 " ")
                (A5 a5 narrow5 wide5 length5 size5 has_length5 is_wide5 40 " ")
                (A6 a6 narrow6 wide6 length6 size6 has_length6 is_wide6 48 " ")
                (A7 a7 narrow7 wide7 length7 size7 has_length7 is_wide7 56 " ")
                (A8 a8 narrow8 wide8 length8 size8 has_length8 is_wide8 64 " ")
                (A9 a9 narrow9 wide9 length9 size9 has_length9 is_wide9 72 " ")
                (A10 a10 narrow10 wide10 length10 size10 has_length10 is_wide10 80 " ")
                (A11 a11 narrow11 wide11 length11 size11 has_length11 is_wide11 88 " ")
            ]
        }
    };

    // Each argument gets a slot: the names of its type, its value and its operands, its place among the lengths in
    // bytes, and what stands before its operand.
    (@zip $site:tt [$($done:tt)*] [$arg:tt $($args:tt)*] [$slot:tt $($slots:tt)*]) => {
        $crate::__fire!(@zip $site [$($done)* {$slot $arg}] [$($args)*] [$($slots)*]);
    };
    (@zip $site:tt $done:tt [$arg:tt $($args:tt)*] []) => {
        compile_error!("a probe has at most 12 arguments");
    };
    // From five arguments on there are not enough registers for every word of each.
    (@zip $site:tt [$a:tt $b:tt $c:tt $d:tt $e:tt $($more:tt)*] [] $slots:tt) => {
        $crate::__fire!(@define block $site $a $b $c $d $e $($more)*);
    };
    (@zip $site:tt [$($args:tt)*] [] $slots:tt) => {
        $crate::__fire!(@define direct $site $($args)*);
    };

    (@define $how:ident [$fire:ident $guard:ident $size:ident $provider:tt $name:tt $description:tt]
        $({($A:ident $($slot:tt)*) $arg:tt})*
    ) => {
        $crate::__define_site! {
            $how $fire $guard $provider $name [$size $description [$($A)*] [$([$A $arg])*]]
            $(($A $($slot)*))*
        }
    };
}

/// Writes the nopal note of a probe, once per object file and, as a comdat group, once per linked file. `R` keeps it
/// where the linker drops what nothing refers to.
#[doc(hidden)]
#[macro_export]
macro_rules! __describe {
    ($provider:tt $name:tt [short $($rest:tt)*]) => {
        $crate::__describe! { @write $provider $name $($rest)* [48
            (w0 0) (w1 1) (w2 2) (w3 3) (w4 4) (w5 5) (w6 6) (w7 7) (w8 8) (w9 9) (w10 10) (w11 11) (w12 12)
            (w13 13) (w14 14) (w15 15) (w16 16) (w17 17) (w18 18) (w19 19) (w20 20) (w21 21) (w22 22)
            (w23 23) (w24 24) (w25 25) (w26 26) (w27 27) (w28 28) (w29 29) (w30 30) (w31 31) (w32 32)
            (w33 33) (w34 34) (w35 35) (w36 36) (w37 37) (w38 38) (w39 39) (w40 40) (w41 41) (w42 42)
            (w43 43) (w44 44) (w45 45) (w46 46) (w47 47)
        ] }
    };
    ($provider:tt $name:tt [long $($rest:tt)*]) => {
        $crate::__describe! { @write $provider $name $($rest)* [192
            (w0 0) (w1 1) (w2 2) (w3 3) (w4 4) (w5 5) (w6 6) (w7 7) (w8 8) (w9 9) (w10 10) (w11 11) (w12 12)
            (w13 13) (w14 14) (w15 15) (w16 16) (w17 17) (w18 18) (w19 19) (w20 20) (w21 21) (w22 22)
            (w23 23) (w24 24) (w25 25) (w26 26) (w27 27) (w28 28) (w29 29) (w30 30) (w31 31) (w32 32)
            (w33 33) (w34 34) (w35 35) (w36 36) (w37 37) (w38 38) (w39 39) (w40 40) (w41 41) (w42 42)
            (w43 43) (w44 44) (w45 45) (w46 46) (w47 47) (w48 48) (w49 49) (w50 50) (w51 51) (w52 52)
            (w53 53) (w54 54) (w55 55) (w56 56) (w57 57) (w58 58) (w59 59) (w60 60) (w61 61) (w62 62)
            (w63 63) (w64 64) (w65 65) (w66 66) (w67 67) (w68 68) (w69 69) (w70 70) (w71 71) (w72 72)
            (w73 73) (w74 74) (w75 75) (w76 76) (w77 77) (w78 78) (w79 79) (w80 80) (w81 81) (w82 82)
            (w83 83) (w84 84) (w85 85) (w86 86) (w87 87) (w88 88) (w89 89) (w90 90) (w91 91) (w92 92)
            (w93 93) (w94 94) (w95 95) (w96 96) (w97 97) (w98 98) (w99 99) (w100 100) (w101 101) (w102 102)
            (w103 103) (w104 104) (w105 105) (w106 106) (w107 107) (w108 108) (w109 109) (w110 110)
            (w111 111) (w112 112) (w113 113) (w114 114) (w115 115) (w116 116) (w117 117) (w118 118)
            (w119 119) (w120 120) (w121 121) (w122 122) (w123 123) (w124 124) (w125 125) (w126 126)
            (w127 127) (w128 128) (w129 129) (w130 130) (w131 131) (w132 132) (w133 133) (w134 134)
            (w135 135) (w136 136) (w137 137) (w138 138) (w139 139) (w140 140) (w141 141) (w142 142)
            (w143 143) (w144 144) (w145 145) (w146 146) (w147 147) (w148 148) (w149 149) (w150 150)
            (w151 151) (w152 152) (w153 153) (w154 154) (w155 155) (w156 156) (w157 157) (w158 158)
            (w159 159) (w160 160) (w161 161) (w162 162) (w163 163) (w164 164) (w165 165) (w166 166)
            (w167 167) (w168 168) (w169 169) (w170 170) (w171 171) (w172 172) (w173 173) (w174 174)
            (w175 175) (w176 176) (w177 177) (w178 178) (w179 179) (w180 180) (w181 181) (w182 182)
            (w183 183) (w184 184) (w185 185) (w186 186) (w187 187) (w188 188) (w189 189) (w190 190)
            (w191 191)
        ] }
    };
    (@write $provider:tt $name:tt $description:tt $types:tt $args:tt [$max:literal $(($word:ident $index:literal))*]) => {
        $crate::__describe!(@const $provider $name $description $types $args);
        // SAFETY: no code; the text only fills a section that the program does not look at.
        unsafe {
            $crate::__private::asm!(
                concat!(
                    ".ifndef ", $crate::__symbol!(".Lnopal_about." $provider "." $name), "\n",
                    ".pushsection .note.nopal, \"GR\", %note, ",
                    $crate::__symbol!("nopal." $provider "." $name), ", comdat\n",
                    ".balign 4\n",
                    $crate::__symbol!(".Lnopal_about." $provider "." $name), ":\n",
                    ".long 6, {len}, 1\n",
                    ".asciz \"nopal\"\n",
                    ".balign 4",
                ),
                $(concat!(".if {words} > ", $index, "\n.octa {", stringify!($word), "}\n.endif"),)*
                ".if {tails} > 0\n.long {tail0}\n.endif",
                ".if {tails} > 1\n.long {tail1}\n.endif",
                ".if {tails} > 2\n.long {tail2}\n.endif",
                ".if {tails} > 3\n.long {tail3}\n.endif",
                ".popsection",
                ".endif",
                $($word = const $crate::__note!($types).word($index),)*
                len = const $crate::__note!($types).n_bytes(),
                words = const $crate::__note!($types).n_words($max),
                tails = const $crate::__note!($types).n_tail(),
                tail0 = const $crate::__note!($types).tail(0),
                tail1 = const $crate::__note!($types).tail(1),
                tail2 = const $crate::__note!($types).tail(2),
                tail3 = const $crate::__note!($types).tail(3),
                options(nomem, nostack, preserves_flags)
            )
        }
    };
    // Where no note is written: only the checks.
    (@check $provider:tt $name:tt [$size:ident $description:tt $types:tt $args:tt]) => {
        $crate::__describe!(@const $provider $name $description $types $args);
        const { _ = $crate::__note!($types).n_bytes() };
    };
    // The description depends on the types of the arguments, which in generic code are known late.
    (@const $provider:tt $name:tt [$doc:expr, $pair:expr, $log_level:expr] [$($A:ident)*]
        [$([$B:ident [$arg_name:expr, $arg_type:expr, $arg_doc:expr, $labels:expr]])*]
    ) => {
        struct Described<$($A),*>($crate::__private::PhantomData<($($A,)*)>);
        impl<$($A: $crate::Arg),*> Described<$($A),*> {
            const NOTE: &'static $crate::__private::Note = &$crate::__private::Note::new(
                &$crate::__private::Description {
                    provider: $crate::__text!($provider),
                    name: $crate::__text!($name),
                    doc: $doc,
                    pair: $pair,
                    log_level: $log_level,
                },
                &[$($crate::__private::ArgDescription::new::<$B>($arg_name, $arg_type, $arg_doc, $labels)),*],
            );
        }
    };
}

/// The description that `__describe!` made for these types.
#[doc(hidden)]
#[macro_export]
macro_rules! __note {
    ([$($A:ident)*]) => { Described::<$($A),*>::NOTE };
}

/// The stapsdt note up to the operands. `?` puts it into the group of the function around it, if there is one.
#[doc(hidden)]
#[macro_export]
macro_rules! __stapsdt_begin {
    ($guard:ident $provider:tt $name:tt) => {
        concat!(
            ".pushsection .note.stapsdt, \"?\", %note\n",
            ".balign 4\n",
            ".long 992f - 991f, 994f - 993f, 3\n",
            "991: .asciz \"stapsdt\"\n",
            "992: .balign 4\n",
            "993: .quad 990b\n",
            ".quad _.stapsdt.base\n",
            ".quad ", $crate::__semaphore_address!($guard $provider $name), "\n",
            ".asciz \"", $crate::__text!($provider), "\"\n",
            ".asciz \"", $crate::__text!($name), "\"",
        )
    };
}

/// The rest of the stapsdt note, and the two things it refers to: the base, whose address undoes a later shift of the
/// file, and the semaphore. `R` keeps the base although no code refers to it.
#[doc(hidden)]
#[macro_export]
macro_rules! __stapsdt_end {
    ($guard:ident $provider:tt $name:tt) => {
        concat!(
            ".byte 0\n",
            "994: .balign 4\n",
            ".popsection\n",
            ".ifndef _.stapsdt.base\n",
            ".pushsection .stapsdt.base, \"aGR\", %progbits, .stapsdt.base, comdat\n",
            ".weak _.stapsdt.base\n",
            ".hidden _.stapsdt.base\n",
            ".type _.stapsdt.base, %object\n",
            "_.stapsdt.base: .zero 1\n",
            ".size _.stapsdt.base, 1\n",
            ".popsection\n",
            ".endif\n",
            $crate::__semaphore!($guard $provider $name),
        )
    };
}

/// Defines the probe's semaphore: one in each linked file, whatever number of sites and object files.
#[doc(hidden)]
#[macro_export]
macro_rules! __semaphore {
    (guarded $provider:tt $name:tt) => {
        concat!(
            ".ifndef ", $crate::__semaphore_symbol!($provider $name), "\n",
            ".pushsection .probes, \"awG\", %progbits, ",
            $crate::__semaphore_symbol!($provider $name), ", comdat\n",
            ".balign 2\n",
            ".weak ", $crate::__semaphore_symbol!($provider $name), "\n",
            ".hidden ", $crate::__semaphore_symbol!($provider $name), "\n",
            ".type ", $crate::__semaphore_symbol!($provider $name), ", %object\n",
            $crate::__semaphore_symbol!($provider $name), ": .zero 2\n",
            ".size ", $crate::__semaphore_symbol!($provider $name), ", 2\n",
            ".popsection\n",
            ".endif",
        )
    };
    (plain $provider:tt $name:tt) => { "" };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __semaphore_address {
    (guarded $provider:tt $name:tt) => { $crate::__semaphore_symbol!($provider $name) };
    (plain $provider:tt $name:tt) => { "0" };
}

/// The name that C programs of the same provider use, so that both share one semaphore.
#[doc(hidden)]
#[macro_export]
macro_rules! __semaphore_symbol {
    ($provider:tt $name:tt) => { $crate::__symbol!("" $provider "_" $name "_semaphore") };
}

/// A symbol in quotes, because names may have a `-`.
#[doc(hidden)]
#[macro_export]
macro_rules! __symbol {
    ($before:literal $provider:tt $between:literal $name:tt $($after:literal)?) => {
        concat!("\"", $before, $crate::__text!($provider), $between, $crate::__text!($name), $($after,)? "\"")
    };
}

/// A name written as `redis` or as `"redis"`.
#[doc(hidden)]
#[macro_export]
macro_rules! __text {
    ($text:literal) => {
        $text
    };
    ($text:ident) => {
        stringify!($text)
    };
}
